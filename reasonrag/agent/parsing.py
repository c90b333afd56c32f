"""Parsing: from a reply to a typed step, or to a parse error.

The reply is cut at the first closing tag, whether or not the endpoint honoured the stop string. An endpoint that
honours it drops it: an open tag then gets its closing tag back. Judgements are parsed in the same way. Knows the tags
of each turn and nothing of prompts. What it is given has no reasoning any more (`reasonrag.llm.reasoning`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from preference import ActionType, AgentAction
from preference.export.sanitize import plain_text
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.llm.reasoning import more_room

TURN_TAGS: dict[AgentAction, tuple[ActionType, ...]] = {
    "think": ("query", "answer"),
    "read": ("evidence",),
    "conclude": ("answer",),
}
"""The tags each turn may produce; the contract with RAG_ProGuide."""
_TYPES: dict[str, ActionType] = {tag: tag for tags in TURN_TAGS.values() for tag in tags}

_NUMBER = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)\s*(?:/\s*100|%)?")
_POSITION = re.compile(r"[0-9]{1,4}")
_SUPPORT = re.compile(r"\s*([0-9]{1,4})\s*:\s*(none|[0-9]{1,4}(?:[\s,]+[0-9]{1,4})*)\s*", re.IGNORECASE)
_INSIDE_A_TAG = re.compile(r"<(\w+)>[^<]*</\1>")
_TAG = re.compile(r"<\s*+(/?)\s*+(query|evidence|answer)\s*+>", re.IGNORECASE)

_EndCause = Literal["withheld", "too_long", "rejected", "no_passages", "refused", "unknown_end", "reasoning_cut"]
_FormCause = Literal["no_tag", "wrong_tag", "not_opened", "mixed_tags", "no_json", "wrong_value", "no_answer"]
ParseCause = Literal[_EndCause, _FormCause, "cut_off", "loop", "wrong_tool", "empty", "copied"]
"""withheld: by the endpoint's content filter. refused: by the model. too_long: the prompt is, for the model's context.
rejected: the prompt, by the endpoint, for a reason of its own. no_passages: the retriever rejects the query before.
unknown_end: a tag is open, and the endpoint says in no word we know why the reply ended. reasoning_cut: the reasoning
hit max_tokens before anything was said. cut_off: the reply hit max_tokens before its tag was closed. loop: likewise,
but it ends saying the same words again and again, so that a higher max_tokens does not help. no_tag: no tag at all.
wrong_tag: a tag this turn may not use. not_opened: a closing tag without its opening one. mixed_tags: one tag opened
inside another. no_json: no JSON object with what the turn may say. wrong_value: what it says is no text. wrong_tool: a
call of another tool than search. no_answer: an answer is missing beside the query. empty: nothing inside. copied: what
is inside comes from the instructions."""
DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
"""Numbers stay as they are written: 1.10 is no 1.1, and 1e999 not infinite."""
LOOP_WORDS, LOOP_TIMES = 4, 3
"""A cut reply is a loop where its last so many words occur so often in it."""
PLACEHOLDERS = frozenset({"..", "the answer", "the next sentence", "what to search for", "what the passages say"})
"""What stands in the tags of our own instructions; small models copy it."""
COPIED_WORDS = 5
"""Content of at least so many words that stands in the instructions, word for word, is no step."""
NOTHING_SAID: dict[Ending, tuple[ParseCause, str]] = {
    "withheld": ("withheld", "the endpoint's content filter withheld the reply"),
    "refused": ("refused", "the model refuses to reply"),
    "too_long": (
        "too_long",
        "prompt and reply exceed the model's context: lower --top-k, --max-steps or --max-reply-tokens, or raise it",
    ),
}
"""Why a reply that closes no tag is unreadable, whatever its text."""
NOT_REPAIRED: tuple[ParseCause, ...] = ("withheld", "refused", "too_long", "reasoning_cut")
"""Causes without a repair turn: it would meet the same filter, or the same limit."""


class ParsedReply(NamedTuple):
    """`response`: the reply up to and including its closing tag, with canonical tags. `content`: the text inside the
    tag. `calls_left_out`: further calls of a tool, of which the first counts."""

    response: str
    action_type: ActionType
    content: str
    calls_left_out: int = 0


class TaggedReply(NamedTuple):
    """A parsed reply of another method than the agent. `tag`: the tag around the content."""

    response: str
    tag: str
    content: str


class ParseError(NamedTuple):
    cause: ParseCause
    detail: str


def parse_reply(text: str, *, action: AgentAction, ending: Ending) -> ParsedReply | ParseError:
    """The step of a reply in a turn, or its parse error."""
    found = parse_tagged(text, tags=TURN_TAGS[action], ending=ending, others=tuple(_TYPES))
    return found if isinstance(found, ParseError) else ParsedReply(found.response, _TYPES[found.tag], found.content)


def parse_tagged(
    text: str, *, tags: tuple[str, ...], ending: Ending, others: tuple[str, ...] | None = None
) -> TaggedReply | ParseError:
    """The content of one of the tags, up to the first closing one, or a parse error.

    others: the tags of an agent's other turns, which have no place in this one. Where it is None, reasoning may mention
    the tags, so the last opening one counts.
    """
    expected, mentioned = "expected " + " or ".join([f"<{tag}>..</{tag}>" for tag in tags]), others is None
    pattern = rf"<\s*+(/?)\s*+({'|'.join((*tags, *(others or ())))})\s*+>"
    marks = list(re.finditer(pattern, text, re.IGNORECASE))
    closing = next((mark for mark in marks if mark[1]), None)
    opened = [mark for mark in marks if not mark[1] and (closing is None or mark.start() < closing.start())]
    if closing is None and (ending in NOTHING_SAID or not opened):
        return nothing_found(text, ending, "no_tag", f"{expected}; found no tag")
    name = (closing or opened[-1])[2].lower()
    if name not in tags:
        return ParseError("wrong_tag", f"{expected}; found <{name}>")
    if closing is None and ending == "cut":
        return cut_off(text, f"<{name}> is still open at the token limit")
    if closing is None and ending != "stopped":
        return ParseError("unknown_end", f"<{name}> is still open; close it with </{name}>")
    if not opened:
        return ParseError("not_opened", f"</{name}> closes nothing")
    opening = opened[-1]
    if opening[2].lower() != name or (len(opened) > 1 and not mentioned):
        found = " ".join(f"<{mark[2].lower()}>" for mark in opened)
        detail = f"</{name}> closes nothing" if mentioned else f"{found} opened where only <{name}> is closed"
        return ParseError("mixed_tags", detail)
    content = text[opening.end() : closing.start() if closing else None].strip()
    if not content:
        return ParseError("empty", f"no text inside <{name}>")
    return TaggedReply(f"{text[: opening.start()].lstrip()}<{name}>{content}</{name}>", name, content)


def nothing_found(text: str, ending: Ending, cause: ParseCause, detail: str) -> ParseError:
    """Why a reply holds no step. cause, detail: of one that ended by itself."""
    if ending in NOTHING_SAID:
        return ParseError(*NOTHING_SAID[ending])
    if ending == "cut" and not text.strip():
        return ParseError("reasoning_cut", f"nothing but reasoning, cut at --max-reply-tokens: {more_room()}")
    return cut_off(text, detail) if ending == "cut" else ParseError(cause, detail)


def cut_off(text: str, found: str) -> ParseError:
    """Why a reply was cut at the token limit, and, for the repair turn, what to do about it."""
    if is_loop(text):
        return ParseError("loop", f"{found}, and the same words come again and again; say each thing once")
    return ParseError("cut_off", f"{found}; say it in far fewer words")


def is_loop(text: str) -> bool:
    """Whether a cut reply ends with words that it said before: its last `LOOP_WORDS`, without the one that was cut,
    occur at least `LOOP_TIMES` times. Not found where words are not separated by spaces."""
    words = text.split()[:-1]
    return len(words) >= LOOP_WORDS and " ".join(words).count(" ".join(words[-LOOP_WORDS:])) >= LOOP_TIMES


def is_copied(content: str, instructions: Sequence[str]) -> bool:
    """Whether the content of a tag is a placeholder of our prompts, or, from `COPIED_WORDS` words on, stands in the
    instructions. What they show inside a tag may be meant: an example, or what to say when nothing is found."""
    said = " ".join(content.casefold().split())
    if said in PLACEHOLDERS or said.rstrip(".") in PLACEHOLDERS:
        return True
    return len(said.split()) >= COPIED_WORDS and any(said in _outside_tags(each) for each in instructions)


@lru_cache(maxsize=64)
def _outside_tags(instruction: str) -> str:
    return " ".join(_INSIDE_A_TAG.sub(" ", instruction).casefold().split())


def tags_of(text: str) -> tuple[int, int]:
    """Number of opening and of closing step tags in a text."""
    closing = [bool(tag[1]) for tag in _TAG.finditer(text)]
    return closing.count(False), closing.count(True)


def parse_score(text: str, ending: Ending) -> float | None:
    """A judgement's score from 0 to 100, divided by 100; None if it has none."""
    found = _NUMBER.fullmatch(_inside("score", text, ending))
    score = float(found[1]) / 100 if found else None
    return score if score is not None and score <= 1 else None


def parse_ranking(text: str, ending: Ending, *, candidates: int) -> tuple[int, ...] | None:
    """A judgement's ranking: the numbers of all candidates, from 1, best first; None if it has none."""
    words = [each for each in re.split(r"[\s,;>]+", _inside("ranking", text, ending)) if each]
    if not all(_POSITION.fullmatch(each) for each in words):
        return None
    order = tuple(map(int, words))
    return order if sorted(order) == list(range(1, candidates + 1)) else None


def parse_pick(text: str, ending: Ending, *, candidates: int) -> tuple[int, int] | Literal["none"] | None:
    """A judgement's pick: numbers (from 1) of the better and the worse candidate, or "none"; None if unreadable."""
    said = _inside("pick", text, ending).casefold()
    words = [each for each in re.split(r"[\s,;>]+", said) if each]
    if words == ["none"]:
        return "none"
    if len(words) != len(("better", "worse")) or not all(_POSITION.fullmatch(each) for each in words):
        return None
    better, worse = map(int, words)
    return (better, worse) if better != worse and min(better, worse) >= 1 and max(better, worse) <= candidates else None


def parse_support(text: str, ending: Ending, *, sentences: int, passages: int) -> list[frozenset[int]] | None:
    """The passages that support each sentence, numbers from 1; None if a sentence has no entry, or a wrong one."""
    found = dict[int, frozenset[int]]()
    for entry in re.split(r"[;\n]+", _inside("support", text, ending).strip("; \n")):
        if not (said := _SUPPORT.fullmatch(entry)):
            return None
        found[int(said[1])] = frozenset(map(int, re.findall(r"\d+", said[2])))
    named = frozenset[int]().union(*found.values())
    whole = sorted(found) == list(range(1, sentences + 1)) and all(1 <= each <= passages for each in named)
    return [found[number] for number in sorted(found)] if whole else None


def parse_question(text: str, ending: Ending, *, passages: int) -> tuple[str, str, list[int]] | None:
    """A written question, its answer and the numbers (from 1) of the passages it rests on, all empty where the writer
    has none; None if it cannot be read."""
    question, named, answer = (_inside(each, text, ending) for each in ("question", "passages", "answer"))
    if answer.casefold() == question.casefold() == "none":
        return "", "", []
    numbers = sorted({int(each) for each in re.findall(r"[0-9]{1,4}", named)})
    if not (question and answer and numbers and numbers[0] > 0 and numbers[-1] <= passages):
        return None
    return " ".join(question.split()), " ".join(answer.split()), numbers


def parse_answers(text: str, ending: Ending) -> list[str] | None:
    """A reader's answers, one on each line, none where it does not know; None if they cannot be read."""
    lines = [" ".join(each.split()) for each in _inside("answers", text, ending).splitlines()]
    found = [each.removeprefix("- ") for each in lines if each]
    return [each for each in found if each.casefold().rstrip(".") != "unknown"] if found else None


def _inside(tag: str, text: str, ending: Ending) -> str:
    """The content of a judgement's tag, parsed like a step: up to the first closing tag, which an endpoint may have
    dropped, from the last opening one. Empty if there is none or the reply was cut off in it."""
    said, *rest = re.split(rf"<\s*+/\s*+{tag}\s*+>", text, maxsplit=1, flags=re.IGNORECASE)
    if not rest and ending != "stopped":
        return ""
    _, *opened = re.split(rf"<\s*+{tag}\s*+>", said, flags=re.IGNORECASE)
    return opened[-1].strip() if opened else ""


def text_of(value: object) -> str | None:
    """A value as text, empty where it says nothing; None for what is no text. JSON's escapes can write special tokens,
    and surrogates, which no file can hold."""
    if not isinstance(value, str):
        return "" if value is None else None
    return plain_text(value.encode("utf-8", "replace").decode()).strip()
