"""RAG-Gym's agents (arXiv 2502.13957): a reply ends with a JSON object, and the history stands behind the question.

ReAct (arXiv 2210.03629) is shown the documents that its queries found. Search-o1 (arXiv 2501.05366) is shown a reader's
short answers in their place; the reader is asked once for a query and its documents, at temperature 0. Re2Search
(section 3.3) has the history of Search-o1; it answers first, then asks for what the history does not hold.

Departures: RAG-Gym gives the last turn a prompt of its own only at inference, here it has one everywhere; each document
stands on a line; RAG-Gym shows its critic and its training a Python list of a reader's answers and its agent the text,
here all are shown the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from preference import ActionType, Message
from reasonrag.agent.parsing import DECODER, ParsedReply, ParseError, nothing_found, text_of
from reasonrag.agent.prompting import Prompts, document_lines, one_line
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.settings import PassageOrder

QUERY, ANSWER = "query", "answer"
MOST_BRACES = 64
"""Opening braces, from the end of a reply, that may begin its object: 10,000 are read as fast as 64."""
_NOTHING = frozenset({"", "none", "null"})
"""Values, in small letters, that say nothing: models write null as a word."""


@dataclass(frozen=True)
class JsonAgent:
    """ReAct, or with a reader Search-o1: of a query and an answer in one object the query counts."""

    has_reader: bool
    reads_at_once: bool = True

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        shown = "\n".join([f"Question: {one_line(state.question.question)}", *self._history(state, order)])
        system = prompts.system(state.action, first=not state.thoughts, style=state.question.style)
        return Message(role="system", content=system), Message(role="user", content=shown)

    def _history(self, state: State, order: PassageOrder) -> Iterator[str]:
        """A line for each query, and one for each document that it found, or for what a reader found in these."""
        for seen in filter(None, state.observed):
            yield f"Query: {one_line(seen.query)}"
            if self.has_reader:
                yield f"Reader: {one_line(seen.said or '') or 'nothing was found'}"
                continue
            yield from document_lines(in_order(seen.passages, order)) or ["No document was found."]

    def stops(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        return ()

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        wanted = (ANSWER,) if state.action == "conclude" else (QUERY, ANSWER)
        found = read_object(text, ending, wanted)
        if isinstance(found, ParseError):
            return found
        response, said = found
        return as_step(response, said, next(each for each in wanted if each in said))

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        return f"{thought} {orjson.dumps({action_type: content}).decode()}"


class Re2Search(JsonAgent):
    """An answer is wanted in every reply: one without is unreadable, whatever it asks for. The query counts where there
    is one; without, and in the last turn, the answer does."""

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        found = read_object(text, ending, (ANSWER, QUERY))
        if isinstance(found, ParseError):
            return found
        response, said = found
        if ANSWER not in said:
            return ParseError("no_answer", 'expected a JSON object with "answer", and with "query" if a claim is open')
        return as_step(response, said, QUERY if QUERY in said and state.action != "conclude" else ANSWER)


# -- replies --------------------------------------------------------------------------------------------------


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
