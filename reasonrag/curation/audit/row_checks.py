"""The checks of a single row: malformed sides, leaked golden answers, secrets, special tokens.

Decides what is wrong with a row by itself; `dataset_checks` decides what only all rows together show. Texts are read,
never kept: only names of checks, numbers and a few words of ours leave this module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_args

from preference.answer_scores import normalize_answer
from preference.candidate_records import question_key
from preference.export.formats import messages_of
from preference.export.sanitize import PLACEHOLDER
from preference.labelling import TokenCounter
from preference.records import AgentAction, Message
from reasonrag.agent.parsing import ParsedReply, ParseError, parse_reply, tags_of
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols import prorag
from reasonrag.agent.protocols.json_agents import ANSWER, QUERY, as_step, read_object
from reasonrag.agent.protocols.tools import parse_turn
from reasonrag.agent.settings import AGENTS
from reasonrag.curation.audit.catalogue import CheckName
from reasonrag.data.questions import AnswerStyle
from reasonrag.llm.hermes import SIGNATURE
from reasonrag.redaction import excerpt, keys_in, mask_secrets, texts_in

TEXTS: Final = ("instruction", "input", "chosen", "rejected")
"""Fields without which a row cannot be trained on."""

_SPECIAL = re.compile(r"<\|[^|<>\s]{1,64}\|>|<｜[^｜<>\s]{1,64}｜>")  # noqa: RUF001 - DeepSeek's bars are full width
_NAMED_TAG = re.compile(r"<\s*(query|evidence|answer)\s*>", re.IGNORECASE)
_QUESTION = re.compile(r"\s*Question:\s*(.*?)(?=\nPrevious Thoughts:|\Z)", re.DOTALL)
_READ = re.compile(r"<(reference|evidence|tool_response)>.*?(?:</\1>|\Z)", re.DOTALL)
"""Passages and reported evidence, where golden answers are expected."""
_LABEL = re.compile(
    r"\b(?:(?:correct|right|true|gold(?:en)?|ground[- _]?truth|expected|target|official|reference)"
    r"[- _]*(?:final[- _]*)?(?:answers?|labels?)|ground[- _]?truth|answer[- _]?key)[\"'*_`]*\s*(?:\([^)\n]{0,40}\)\s*)?"
    r"[:=]\s*([^\n]{0,300})",
    re.IGNORECASE,
)
_BARE_LABEL = re.compile(r"^[ \t>*#-]*(?:the\s+)?(?:final\s+)?answers?[ \t*_]*[:=][ \t]*([^\n]{0,300})", re.I | re.M)
_SAYS_LITTLE = frozenset({"yes", "no", "true", "false", "none", "unknown", "both", "neither", "same"})
"""Answers that may occur in any text."""
_LONGEST_NAME = 80
"""Characters of the name of a data set, renderer or label: it goes into the report."""
_ACTION_OF: dict[frozenset[str], AgentAction] = {
    frozenset({"query", "answer"}): "think",
    frozenset({"evidence"}): "read",
    frozenset({"answer"}): "conclude",
}
_AS_JSON = frozenset({"json"})
"""In place of tags: the system turn shows a JSON object to reply with."""
_AS_CALLS = frozenset({"tool_call"})
_SHOWS_JSON = re.compile(r'\{"(?:query|answer)"')

RowFinding: TypeAlias = tuple[CheckName, str]
"""A check and what exactly was found, in a few words of ours; empty if there is nothing to add."""


def hash64(text: str, other: str = "") -> int:
    """A 64-bit hash of a text, or of two."""
    content = text.encode("utf-8", "surrogatepass")
    both = b"%d:%b%b" % (len(content), content, other.encode("utf-8", "surrogatepass"))
    return int.from_bytes(hashlib.blake2b(both, digest_size=8).digest())


@dataclass
class RowFacts:
    """What is kept of a row: findings and numbers."""

    findings: list[RowFinding] = field(default_factory=list)
    gold_known: bool = False
    """Whether it has golden answers to look for."""
    broken: bool = False
    instruction: int = 0
    state: int = 0
    question: int = 0
    prompt_tokens: int = 0
    chosen_tokens: int = 0
    rejected_tokens: int = 0
    gold_in_system: bool = False
    renderer: str | None = None


def _own_system_turns() -> frozenset[str]:
    """The package's own system turns, in each style of answers."""
    known = [load_prompts(agent=agent) for agent in AGENTS]
    turns = [(prompts, action) for prompts in known for action in get_args(AgentAction) if action in prompts.texts]
    return frozenset(
        prompts.system(action, style=style) for prompts, action in turns for style in get_args(AnswerStyle)
    )


class RowChecker:
    """Checks rows one by one. Caches the last turns of prompts, so that each is checked once.

    counter: of tokens. secrets: values of the environment to search for, besides everything that looks like a key.
    trusted: whether the lengths in the rows were just counted by the same counter.
    """

    def __init__(self, counter: TokenCounter, *, secrets: Sequence[str] = (), trusted: bool = False) -> None:
        self._counter = counter
        self._secrets = secrets
        self._trusted = trusted
        self._own_prompts = _own_system_turns()
        self._turn = lru_cache(maxsize=8)(self._text)

    def facts(self, row: object) -> RowFacts:
        """The findings and numbers of a row, which may be any object; one that cannot be trained on is `broken`."""
        if not isinstance(row, Mapping):
            return RowFacts(findings=[("broken_row", "no object")], broken=True)
        if missing := [name for name in TEXTS if not isinstance(row.get(name), str)]:
            return RowFacts(findings=[("broken_row", f"no text in {', '.join(missing)}")], broken=True)
        try:
            user = _shown(row)
        except (TypeError, ValueError):
            return RowFacts(findings=[("broken_row", "no text in history")], broken=True)
        instruction, chosen, rejected = row["instruction"], row["chosen"], row["rejected"]
        facts = RowFacts(
            findings=[*self._turn(instruction, "instruction"), *self._turn(user, "input")],
            instruction=hash64(instruction),
            state=hash64(instruction, user),
            question=int(question_key(_question(row, user)), 16),
            prompt_tokens=self._tokens(row, "prompt"),
            chosen_tokens=self._tokens(row, "chosen"),
            rejected_tokens=self._tokens(row, "rejected"),
            renderer=_short(row.get("renderer")),
        )
        if PLACEHOLDER in user:
            facts.findings.append(("special_token", f"{PLACEHOLDER} in input"))
        if not user.strip():
            facts.findings.append(("empty_prompt", ""))
        for where, text in (("chosen", chosen), ("rejected", rejected), ("other fields", _rest(row))):
            facts.findings += self._text(text, where)
        _check_sides(row, _tags_allowed(instruction, user), facts)
        self._look_for_gold(row, facts)
        return facts

    def _tokens(self, row: Mapping[str, Any], part: str) -> int:
        counted = row.get(f"{part}_tokens") if self._trusted else None
        if isinstance(counted, int):
            return counted
        if part != "prompt":
            return self._counter.reply(row[part])
        return self._counter.prompt([Message.model_validate(turn) for turn in messages_of(row)])

    def _text(self, text: str, where: str) -> tuple[RowFinding, ...]:
        findings: list[RowFinding] = [("secret", f"{kind} in {where}") for kind in keys_in(text, self._secrets)]
        tokens = dict.fromkeys(found[0] for found in _SPECIAL.finditer(text))
        findings += [("special_token", f"{mask_secrets(token, self._secrets)[:40]} in {where}") for token in tokens]
        return tuple(findings)

    def _look_for_gold(self, row: Mapping[str, Any], facts: RowFacts) -> None:
        golden = row.get("golden_answers")
        if not isinstance(golden, list) or not golden:
            return
        golds = _checkable_answers(each for each in golden if isinstance(each, str))
        facts.gold_known = True
        instruction, user = row["instruction"], _shown(row)
        own = instruction.removesuffix(SIGNATURE) in self._own_prompts
        facts.gold_in_system = not own and _holds(instruction, golds)
        before = user.partition("\nPrevious Thoughts:")[0]
        asked = before.partition("\n")[2] if before.lstrip().startswith("Question:") else before
        places = [("input", asked), *([] if own else [("instruction", instruction)])]
        found = [place for place, text in places if any(_holds(line, golds) for line in _labelled_lines(text))]
        facts.findings += [("gold_line_in_prompt", place) for place in found[:1]]


def _rest(row: Mapping[str, Any]) -> str:
    """All other texts of a row, without those that only repeat the four."""
    chosen, rejected, turns = row["chosen"], row["rejected"], messages_of(row)
    rest = {name: value for name, value in row.items() if name not in (*TEXTS, "history")}
    if rest.get("prompt") == "\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in turns):
        del rest["prompt"]
    for name in ("chosen_content", "rejected_content"):
        if isinstance(rest.get(name), str) and rest[name] in chosen + rejected:
            del rest[name]
    return "\n".join(text for value in rest.values() for text in texts_in(value))


def _shown(row: Mapping[str, Any]) -> str:
    """What a prompt shows after its system turn."""
    return "\n".join(turn["content"] for turn in messages_of(row)[1:])


def _question(row: Mapping[str, Any], user: str) -> str:
    """The question of the row, else the beginning of the user turn."""
    named = row.get("question")
    if isinstance(named, str) and named.strip():
        return named
    return found[1] if (found := _QUESTION.match(user)) else user


# -- the two sides ---------------------------------------------------------------------------------------------


def _tags_allowed(instruction: str, user: str) -> frozenset[str]:
    """The tags a reply may use: a turn with passages asks for evidence, and a system turn names only its own tags."""
    if instruction.endswith(SIGNATURE):
        return _AS_CALLS
    if _SHOWS_JSON.search(instruction):
        return _AS_JSON
    for turn in ("think", "read"):  # to conclude, ProRAG's agent and ours have the same tag
        if f"<{prorag.TAGS[turn][0]}>" in instruction:
            return frozenset(prorag.TAGS[turn])
    named = frozenset(each.lower() for each in _NAMED_TAG.findall(instruction))
    if "<reference>" in user or named == {"evidence"}:
        return frozenset({"evidence"})
    if named == {"answer"}:
        return named
    return frozenset({"query", "answer"}) | named


@lru_cache(maxsize=64)
def parse_step(reply: str, may: frozenset[str]) -> ParsedReply | str:
    """The step in a reply under these tags, or one word on why there is none."""
    if may == _AS_CALLS:
        step = parse_turn(reply, "stopped")
        return step.cause if isinstance(step, ParseError) else step
    if may == _AS_JSON:
        found = read_object(reply, "stopped", (QUERY, ANSWER))
        return found.cause if isinstance(found, ParseError) else as_step(*found, QUERY if QUERY in found[1] else ANSWER)
    if not may <= {"query", "evidence", "answer"}:
        said = prorag.parse_step(reply, tuple(may), "stopped")
        return said.cause if isinstance(said, ParseError) else said
    action = _ACTION_OF.get(may)
    actions: Sequence[AgentAction] = (action,) if action else ("think", "read")
    parsed = [parse_reply(reply, action=each, ending="stopped") for each in actions]
    steps = [each for each in parsed if isinstance(each, ParsedReply)]
    if not steps:
        return next((each.cause for each in parsed if not isinstance(each, ParsedReply)), "no_tag")
    opened, closed = tags_of(reply)
    if not closed:
        return "not_closed"
    return steps[0] if (opened, closed) == (1, 1) else "several_tags"


def _check_sides(row: Mapping[str, Any], may: frozenset[str], facts: RowFacts) -> None:
    chosen, rejected = (" ".join(row[side].split()).casefold() for side in ("chosen", "rejected"))
    facts.findings += [("empty_reply", side) for side in ("chosen", "rejected") if not row[side].strip()]
    if chosen and isinstance(step := parse_step(row["chosen"], may), str):
        facts.findings.append(("chosen_malformed", step))
    if chosen == rejected != "":
        facts.findings.append(("identical_sides", ""))


# -- golden answers --------------------------------------------------------------------------------------------


def _checkable_answers(golden: Iterable[str]) -> list[str]:
    """Golden answers that are unlikely to occur by chance, normalised, between spaces."""
    return [f" {each} " for each in map(normalize_answer, golden) if len(each) > 1 and each not in _SAYS_LITTLE]


def _holds(text: str, golds: Sequence[str]) -> bool:
    padded = f" {normalize_answer(text)} "
    return any(gold in padded for gold in golds)


@lru_cache(maxsize=8)
def _labelled_lines(text: str) -> tuple[str, ...]:
    """What follows `correct answer:` and the like, or `answer:` that begins a line, outside passages and evidence."""
    outside = _READ.sub(" ", text)
    return tuple(found[1] for label in (_LABEL, _BARE_LABEL) for found in label.finditer(outside))


def _short(value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return value if len(value) <= _LONGEST_NAME else excerpt(value, _LONGEST_NAME)
