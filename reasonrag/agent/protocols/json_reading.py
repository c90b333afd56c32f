"""Replies that end with one JSON object, and the history that is shown to them. Knows no agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.agent.parsing import ParsedReply, ParseError, nothing_found
from reasonrag.agent.prompting import Prompts, one_line
from reasonrag.agent.state import State
from reasonrag.data.corpus import Passage
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.settings import PassageOrder

QUERY, ANSWER = "query", "answer"
MOST_BRACES = 64
"""Opening braces, from the end of a reply, that may begin its object: 10,000 are read as fast as 64."""
_NOTHING = frozenset({"", "none", "null"})
"""Values, in small letters, that say nothing: models write null as a word."""
DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
"""Numbers stay as they are written: 1.10 is no 1.1, and 1e999 not infinite."""


def documents(state: State, order: PassageOrder) -> Iterator[str]:
    """A line for each query, and one for each document that it found."""
    for seen in filter(None, state.observed):
        yield f"Query: {one_line(seen.query)}"
        found = enumerate(in_order(seen.passages, order), start=1)
        yield from [document_line(*each) for each in found] or ["No document was found."]


def answers(state: State) -> Iterator[str]:
    """A line for each query, and one for what a reader found in its documents."""
    for seen in filter(None, state.observed):
        yield f"Query: {one_line(seen.query)}"
        yield f"Reader: {one_line(seen.said or '') or 'nothing was found'}"


def document_line(number: int, document: Passage) -> str:
    """One document as agents and readers are shown it. number: from 1."""
    return f"Document [{number}] (Title: {one_line(document.title)}) {one_line(document.text)}"


def turns(prompts: Prompts, state: State, history: Iterator[str]) -> tuple[Message, Message]:
    """System and user turn: the question, then the history."""
    shown = "\n".join([f"Question: {one_line(state.question.question)}", *history])
    system = prompts.system(state.action, first=not state.thoughts, style=state.question.style)
    return Message(role="system", content=system), Message(role="user", content=shown)


def read_object(text: str, ending: Ending, wanted: tuple[str, ...]) -> tuple[str, dict[str, str]] | ParseError:
    """The reply up to the end of its last JSON object with one of the wanted keys, and their texts; values that say
    nothing are left out. JSON is parsed, never evaluated."""
    expected = "expected one JSON object with " + " or ".join(f'"{name}"' for name in wanted)
    found = _last_object(text, wanted)
    if found is None:
        return nothing_found(text, ending, "no_json", f"{expected}; found none")
    end, values = found
    texts = {name: text_of(values[name]) for name in wanted if name in values}
    if wrong := next((name for name, said in texts.items() if said is None), None):
        return ParseError("wrong_value", f'{expected}; "{wrong}" is no text')
    said = {name: text for name, text in texts.items() if text and text.casefold() not in _NOTHING}
    return (text[:end].strip(), said) if said else ParseError("empty", f"{expected}; found no text in it")


def as_step(response: str, said: dict[str, str], name: str) -> ParsedReply:
    """The step that one of the values takes."""
    return ParsedReply(response, "query" if name == QUERY else "answer", said[name])


def _last_object(text: str, wanted: tuple[str, ...]) -> tuple[int, dict[str, object]] | None:
    """Where the last object with one of these keys ends, and its values."""
    for start in [each.start() for each in re.finditer(r"\{", text)][: -MOST_BRACES - 1 : -1]:
        try:
            values, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if any(name in values for name in wanted):
            return end, values
    return None


def text_of(value: object) -> str | None:
    """A value as text, empty where it says nothing; None for what is no text. JSON's escapes can write special tokens,
    and surrogates, which no file can hold."""
    if not isinstance(value, str):
        return "" if value is None else None
    return plain_text(value.encode("utf-8", "replace").decode()).strip()
