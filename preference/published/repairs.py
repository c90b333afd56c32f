"""Reading published ReasonRAG data: prompts, replies and values, with every repair counted.

Shared by `trees`, which reads trees, and `rows`, which reads pairs; both count every repair under a name of REPAIRS and
refuse what cannot be repaired under a name of REFUSALS. Nothing unknown is guessed. The texts are untrusted: nothing in
them is followed, and malformed input of any shape raises `Unusable` and nothing else. The formats are taken from the
published pipeline's files; none of its code is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from preference.candidate_records import question_key
from preference.export.json_stream import LONGEST_ITEM
from preference.export.sanitize import plain_text
from preference.published.pair_rules import TAGS, inside
from preference.records import ActionType, Message, ParseFailure

REPAIRS: Final[dict[str, str]] = {
    "unreadable_characters": "NaN, or characters that text cannot hold: replaced by null, or the replacement character",
    "made_plain": "special tokens of a chat template, {{idx}} (which a trainer replaces by a number) or control "
    "characters: written as `(im_end)` for `<|im_end|>`, `(idx)`, spaces",
    # prompts
    "template_cut": "a prompt rendered with its chat template: split into system and user turn",
    "template_preamble": "dates that the Llama template adds to the system turn: removed",
    # replies
    "mixed_tags": "several kinds of tags in a reply: the one of the stated type counts, else the first of query, "
    "evidence, answer",
    "empty_content": "an empty tag, or no reply: kept as a reply that did not parse",
    "no_tag": "no tag, or an incomplete one: kept as a reply that did not parse",
    "content_from_tag": "content was missing or differed from the tag: taken from the tag",
    "type_from_tag": "the action type was missing or differed from the tag: taken from the tag",
    # trees
    "dangling_child": "a child that is not in the file: removed from the list",
    "renumbered": "a tree with gaps in its ids, or children before parents: renumbered",
    "answer_went_on": "an answer that the search continued from: kept as a step that is not terminal",
    # questions
    "id_from_question": "no question id: derived from the question",
    "id_taken": "an id that another tree has: number appended",
    "golden_answers_joined": "no gold answers: taken from --questions",
}
"""Name of a repair -> what was wrong, and how it is repaired. Only what the published scripts write."""

REFUSALS: Final[dict[str, str]] = {
    "not_an_object": "the item is not a JSON object",
    "too_long": f"it has more than {LONGEST_ITEM // 10**6} MB, far more than a tree or a pair has",
    "no_question": "the item has no question, or its user turn does not begin with `Question: `",
    "other_question": "the item states another question than its prompts ask",
    "golden_answers": "the gold answers are no list",
    # trees
    "no_tree": "there is no tree: the published pipeline failed on the item, or it is something else",
    "broken_tree": "ids, parents, children and step counts do not describe one tree, or a node lacks its reply, its "
    "visits (N) or its search value (Q)",
    "unreadable_prompt": "a prompt is not a system turn and a user turn that begins with `Question: `, in messages or "
    "in a known chat template",
    "duplicate_tree": "the same tree was already read",
    # rows
    "no_prompt": "instruction or input is missing, blank or no text, or the system turn is in another column",
    "other_prompt": "`prompt` differs from instruction and input",
    "empty_reply": "a reply is missing, blank or no text",
    "identical_sides": "both replies are the same",
    "chosen_malformed": "the chosen reply has no tag with content",
    "no_layer": "the layer is missing, no depth of a step, or another than in an earlier row of the same state",
    "duplicate": "the same pair was already read",
}
"""Name of a refusal -> why the item cannot be used."""

_EXAMPLES = 5
_LONGEST_EXAMPLE = 200
_LONGEST_NUMBER = 2**53


class Unusable(ValueError):
    """An item that cannot be repaired. `cause`: a name of REFUSALS."""

    def __init__(self, cause: str, message: str = "") -> None:
        super().__init__(message or REFUSALS[cause])
        self.cause = cause


class RepairCount(BaseModel):
    """How often one kind of repair or refusal occurred."""

    count: int = 0
    meaning: str
    examples: list[str] = []
    """Where it occurred first."""


def count(counts: dict[str, RepairCount], name: str, where: str) -> None:
    told = counts.setdefault(name, RepairCount(meaning=(REPAIRS | REFUSALS)[name]))
    told.count += 1
    if len(told.examples) < _EXAMPLES:
        told.examples.append(where[:_LONGEST_EXAMPLE])


@dataclass(frozen=True)
class Notes:
    """Notes repairs at one location of an item; those of a refused one are not counted. found: names and locations."""

    where: str
    found: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.found.append((name, self.where))

    def at(self, place: object) -> Notes:
        return Notes(f"{self.where}, {place}", self.found)


@dataclass(frozen=True)
class KnownQuestion:
    """A question as the question file has it."""

    id: str
    golden_answers: list[str]
    dataset: str
    split: str
    revision: str | None = None


@dataclass(frozen=True)
class ImportRules:
    """What the caller knows. teacher: of rows. config_hash: of every record of a tree. questions: by `question_key`."""

    dataset: str = "unknown"
    split: str = "unknown"
    teacher: str | None = None
    config_hash: str = ""
    questions: Mapping[str, KnownQuestion] = field(default_factory=dict)


# -- prompts ---------------------------------------------------------------------------------------------------

_TURN_OF_LLAMA = re.compile(r"<\|start_header_id\|>([a-z]+)<\|end_header_id\|>\n\n(.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL)
_TURN_OF_CHATML = re.compile(r"<\|im_start\|>([a-z]+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_TEMPLATES = (("<|begin_of_text|>", _TURN_OF_LLAMA), ("", _TURN_OF_CHATML))
_PREAMBLE = re.compile(r"(?:Cutting Knowledge Date: [^\n]{1,40}\n)?(?:Today Date: [^\n]{1,40}\n)\n")
THOUGHTS = "\nPrevious Thoughts: "
REFERENCE = ". Reference: <reference>"


class Turns(NamedTuple):
    """The system turn and the user turn of a prompt."""

    system: str
    user: str

    @property
    def messages(self) -> list[Message]:
        return [Message(role="system", content=self.system), Message(role="user", content=self.user)]

    @property
    def is_read(self) -> bool:
        """Whether it is a read turn: the user turn holds passages."""
        return REFERENCE in self.user


def plain(said: str, note: Notes) -> str:
    """`plain_text`, with the repair noted: texts for training must be inert."""
    harmless = plain_text(said)
    if harmless != said:
        note("made_plain")
    return harmless


def read_prompt(prompt: object, note: Notes) -> Turns | None:
    """System and user turn of chat messages, or of text rendered with the Llama 3 template or ChatML (Qwen). None if
    they are missing, there are other turns, or the user turn does not begin with the question. Special tokens inside
    the turns remain."""
    turns: list[tuple[object, object]] = []
    if isinstance(prompt, str):
        turns.extend(_rendered(prompt, note))
    elif isinstance(prompt, list) and all(isinstance(each, dict) for each in prompt):
        turns.extend((each.get("role"), each.get("content")) for each in prompt)
    if [role for role, _ in turns] != ["system", "user"]:
        return None
    system, user = (text(content) for _, content in turns)
    return Turns(system, user) if system and user and question_of(user) else None


def _rendered(prompt: str, note: Notes) -> list[tuple[str, str]]:
    for opening, turn in _TEMPLATES:
        text = prompt.removeprefix(opening)
        found = list(turn.finditer(text))
        if not found or "".join(each[0] for each in found) != text:
            continue
        turns = [(each[1], each[2]) for each in found]
        if turns[-1] == ("assistant", ""):  # the header of the reply
            turns.pop()
        if turns and turns[0][0] == "system" and (preamble := _PREAMBLE.match(turns[0][1])):
            note("template_preamble")
            turns[0] = ("system", turns[0][1][preamble.end() :])
        note("template_cut")
        return turns
    return []


def question_of(user: str) -> str | None:
    """The question of a user turn; None if it does not begin with one."""
    if not user.startswith("Question: "):
        return None
    return user.removeprefix("Question: ").partition(THOUGHTS)[0].partition(REFERENCE)[0].strip() or None


def question_asked(stated: str | None, asked: str, note: Notes) -> str:
    """The question. stated: by the item, if it says one. asked: by its prompts. Raises Unusable if they differ:
    decontamination must check the question that is trained on."""
    question = asked if stated is None else plain(stated, note).strip()
    if question_key(question) != question_key(asked):
        raise Unusable("other_question", f"the item asks {question[:80]!r}, its prompts ask {asked[:80]!r}")
    return question


# -- replies ---------------------------------------------------------------------------------------------------


class StepReply(NamedTuple):
    """A reply as a step: `content` is the text inside the tag."""

    response: str
    action_type: ActionType | None
    content: str | None
    parse_error: ParseFailure | None = None


def read_reply(response: str, note: Notes, *, stated: ActionType | None = None) -> StepReply:
    """Parse a reply. stated: the file's action type, which decides between several tags."""
    if not response.strip():
        note("empty_content")
        return StepReply(response, None, None, ParseFailure(cause="empty", detail="there is no reply"))
    found = {tag: content for tag in TAGS if (content := inside(response, tag)) is not None}
    if not found:
        note("no_tag")
        last, tag = max((response.rfind(f"<{tag}>"), tag) for tag in TAGS)
        cause = ("cut_off", f"<{tag}> is still open at the end") if last >= 0 else ("no_tag", "found no tag")
        return StepReply(response, None, None, ParseFailure(cause=cause[0], detail=cause[1]))
    if len(found) > 1:
        note("mixed_tags")
    tag = stated if stated in found else next(iter(found))
    if not found[tag]:
        note("empty_content")
        return StepReply(response, tag, "", ParseFailure(cause="empty", detail=f"nothing stands inside <{tag}>"))
    return StepReply(response, tag, found[tag])


# -- values ----------------------------------------------------------------------------------------------------


def whole_number(value: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _LONGEST_NUMBER else None


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _LONGEST_NUMBER:
        return None
    return float(value) if value == value else None  # noqa: PLR0124 - NaN is not itself


def text(value: object) -> str | None:
    """A text that is not blank; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def facts_about(item: dict[str, Any], question: str, rules: ImportRules, note: Notes) -> KnownQuestion:
    """From the question file, else from the item, as rows that reasonrag wrote say it, else from the caller. Gold
    answers of the item that are not blank come first."""
    key, golds = question_key(question), item.get("golden_answers")
    if golds is not None and not isinstance(golds, list):
        raise Unusable("golden_answers")
    known = rules.questions.get(key)
    facts = known or KnownQuestion(
        id=text(item.get("question_id")) or f"q-{key}",
        golden_answers=[],
        dataset=text(item.get("dataset")) or rules.dataset,
        split=text(item.get("split")) or rules.split,
    )
    told = (
        each for each in golds or () if (isinstance(each, int | float) and not isinstance(each, bool)) or text(each)
    )
    found = [plain(str(each), note) for each in told]
    if found or known is None:
        return replace(facts, golden_answers=found)
    note("golden_answers_joined")
    return known
