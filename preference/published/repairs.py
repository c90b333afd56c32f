"""Reading published ReasonRAG data: prompts, replies and values, with every repair counted.

Shared by `trees`, which reads trees, and `rows`, which reads pairs; both count every repair under a name of REPAIRS and
refuse what cannot be repaired under a name of REFUSALS. Nothing unknown is guessed. The texts are untrusted: nothing in
them is followed, and malformed input of any shape raises `Unusable` and nothing else. The formats are taken from the
published pipeline's files; none of its code is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from preference.candidates import question_key
from preference.export.json_stream import LONGEST_ITEM
from preference.export.sanitize import plain_text
from preference.records import ActionType, Message, ParseFailure

REPAIRS: Final[dict[str, str]] = {
    "unreadable_characters": "NaN, or characters that text cannot hold: replaced by null, or the replacement character",
    "made_plain": "special tokens of a chat template, {{idx}} (which a trainer replaces by a number) or control "
    "characters: written as `(im_end)` for `<|im_end|>`, `(idx)`, spaces",
    # prompts
    "template_cut": "a prompt rendered with its chat template: split into system and user turn",
    "template_preamble": "dates that the Llama template adds to the system turn: removed",
    "system_unglued": "the system turn was part of the user turn: separated",
    "prompt_split": "only `prompt` was given: split into system and user turn",
    "prompt_rebuilt": "`prompt` did not match the turns: rebuilt from them",
    "columns_exchanged": "instruction and input held the user turn, another column the system turn: put in place",
    "prompt_of_sibling": "a step without a readable prompt: taken from a step of the same state",
    # replies
    "tag_respelled": "a tag in the wrong case or with spaces: corrected",
    "tag_closed": "an open tag whose content the file confirms: closed",
    "mixed_tags": "several kinds of tags in a reply: the one of the stated type counts, else the first of query, "
    "evidence, answer",
    "empty_content": "an empty tag, or no reply: kept as a reply that did not parse",
    "no_tag": "no tag, or an incomplete one: kept as a reply that did not parse",
    "content_from_tag": "content was missing or differed from the tag: taken from the tag",
    "type_from_tag": "the action type was missing or differed from the tag: taken from the tag",
    "type_respelled": "an action type spelled differently: written as in RAG_ProGuide",
    "reply_unwrapped": "a reply stored as a chat message: its text taken",
    # trees
    "id_of_name": "a node whose id is missing or differs from its name: taken from the name",
    "number_respelled": "a number stored as text or with a decimal point: converted",
    "dangling_child": "a child that is not in the file: removed from the list",
    "child_twice": "a child listed twice: listed once",
    "child_unlisted": "a node missing among its parent's children: added",
    "child_of_another": "a node listed as a child of several: kept with its parent only",
    "parent_of_children": "a node without a usable parent: attached to the node that lists it as a child",
    "orphan": "a node that nothing leads to: left out, with everything below it",
    "no_reply": "a node without a reply: left out, with everything below it",
    "renumbered": "a tree with gaps in its ids, or children before parents: renumbered",
    "step_from_depth": "a step count that is missing or differs from the depth: set to the depth",
    "action_from_prompt": "an action name that is unknown or does not fit prompt and reply: taken from them",
    "answer_from_pred": "the answer of a forced conclusion, stored as `pred`: moved to the answer",
    "answer_went_on": "an answer that the search continued from: kept as a step that is not terminal",
    "visits_missing": "no usable visit count: set to 0",
    "value_missing": "no usable search value: set to 0",
    # questions
    "question_from_prompt": "no question: taken from a prompt",
    "question_of_prompt": "a question that differs from the prompt's: taken from the prompt",
    "id_from_question": "no question id: derived from the question",
    "id_taken": "an id that another tree has: number appended",
    "golden_answer_alone": "a single gold answer that was not a list: made a list",
    "golden_answers_joined": "no gold answers: taken from --questions",
    # rows
    "layer_from_thoughts": "no usable depth: counted from the tags in the previous thoughts",
    "layer_of_state": "a depth that differs from an earlier row of the same state: taken from that row",
}
"""Name of a repair -> what was wrong, and how it is repaired."""

REFUSALS: Final[dict[str, str]] = {
    "no_tree": "there is no tree: the published pipeline failed on the item, or it is something else",
    "not_an_object": "the item is not a JSON object",
    "no_root": "the tree has no node 0",
    "duplicate_id": "two nodes have the same id",
    "cycle": "a node is its own descendant",
    "no_steps": "the tree has no steps",
    "unreadable_prompt": "a prompt is neither a system and a user turn nor text in a known chat template",
    "no_question": "neither the item nor a prompt gives a question",
    "duplicate_tree": "the same tree was already read",
    "no_prompt": "there is no prompt, or it has no system and user turn",
    "empty_chosen": "the chosen reply is missing or blank",
    "empty_rejected": "the rejected reply is missing or blank",
    "identical_sides": "both replies are the same",
    "chosen_malformed": "the chosen reply has no tag with content",
    "no_layer": "no depth is given, and the previous thoughts do not tell it",
    "duplicate": "the same pair was already read",
    "too_long": f"it has more than {LONGEST_ITEM // 10**6} MB, far more than a tree or a pair has",
}
"""Name of a refusal -> why the item cannot be used."""

_EXAMPLES = 5
_LONGEST_NUMBER = 2**53


class Unusable(ValueError):
    """An item that cannot be repaired. `cause`: a name of REFUSALS."""

    def __init__(self, cause: str, message: str = "") -> None:
        meaning = REFUSALS[cause]
        super().__init__(message or meaning)
        self.cause = cause


@dataclass
class Occurrences:
    """How often a repair or refusal occurred, and where first."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


class RepairLog:
    """Repairs and refusals of an import, by name."""

    def __init__(self) -> None:
        self.repairs: dict[str, Occurrences] = {}
        self.refusals: dict[str, Occurrences] = {}

    def repaired(self, name: str, where: str) -> None:
        _note(self.repairs, name, where, known=REPAIRS)

    def refused(self, name: str, where: str) -> None:
        _note(self.refusals, name, where, known=REFUSALS)

    def include(self, other: RepairLog) -> None:
        """Add the repairs of an item that was kept."""
        for name, finding in other.repairs.items():
            mine = self.repairs.setdefault(name, Occurrences())
            mine.count += finding.count
            mine.examples = (mine.examples + finding.examples)[:_EXAMPLES]


def _note(found: dict[str, Occurrences], name: str, where: str, *, known: Mapping[str, str]) -> None:
    if name not in known:
        raise KeyError(name)
    finding = found.setdefault(name, Occurrences())
    finding.count += 1
    if len(finding.examples) < _EXAMPLES:
        finding.examples.append(where)


@dataclass(frozen=True)
class Notes:
    """Records repairs at one location."""

    repair_log: RepairLog
    where: str

    def __call__(self, name: str) -> None:
        self.repair_log.repaired(name, self.where)

    def at(self, place: object) -> Notes:
        return Notes(self.repair_log, f"{self.where}, {place}")


@dataclass(frozen=True)
class KnownQuestion:
    """A question as the question file has it."""

    id: str
    golden_answers: list[str]
    dataset: str
    split: str
    revision: str | None = None


# -- prompts ---------------------------------------------------------------------------------------------------

_TURN_OF_LLAMA = re.compile(r"<\|start_header_id\|>([a-z]+)<\|end_header_id\|>\n\n(.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL)
_TURN_OF_CHATML = re.compile(r"<\|im_start\|>([a-z]+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_TEMPLATES = (("<|begin_of_text|>", _TURN_OF_LLAMA), ("", _TURN_OF_CHATML))
_PREAMBLE = re.compile(r"(?:Cutting Knowledge Date: [^\n]{1,40}\n)?(?:Today Date: [^\n]{1,40}\n)\n")
QWEN_DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""The system turn that template `qwen` uses for rows without one."""
_QUESTION_LINE = re.compile(r"(?:\A|\n)(?=Question: )")
THOUGHTS = "\nPrevious Thoughts: "
REFERENCE = ". Reference: <reference>"
_CLOSED = re.compile(r"</(?:query|evidence)>")


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


def plain_turns(turns: Turns, note: Notes) -> Turns:
    return Turns(plain(turns.system, note), plain(turns.user, note))


def read_prompt(prompt: object, note: Notes) -> Turns | None:
    """System and user turn of chat messages, or of text rendered with the Llama 3 template or ChatML (Qwen). None if
    they are missing or there are other turns. Special tokens inside the turns remain."""
    if isinstance(prompt, str):
        turns = _rendered(prompt, note)
    elif isinstance(prompt, list):
        turns = _messages(prompt)
    else:
        return None
    if not turns or [role for role, _ in turns][-1] != "user":
        return None
    if [role for role, _ in turns] == ["system", "user"]:
        return unglued(turns[0][1], turns[1][1], note)
    return unglued("", turns[0][1], note) if len(turns) == 1 else None


def _messages(prompt: list[Any]) -> list[tuple[str, str]]:
    turns = []
    for message in prompt:
        if not isinstance(message, dict):
            return []
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            return []
        turns.append((role, content))
    return turns


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


def unglued(system: str, user: str, note: Notes) -> Turns | None:
    """Both turns, split if the user turn holds both; None if one is blank."""
    start = _QUESTION_LINE.search(user)
    if start and user[: start.start()].strip():
        head, tail = user[: start.start()], user[start.end() :]
        head = head.removeprefix("System: ")
        if not system.strip() or system.strip() in (head.strip(), QWEN_DEFAULT_SYSTEM):
            note("system_unglued")
            system, user = head, tail
    return Turns(system, user) if system.strip() and user.strip() else None


def split_prompt(prompt: str) -> Turns | None:
    """The turns of RAG_ProGuide's `prompt`, "System: ..\\nUser: ..": cut where the user turn asks the question, else at
    the only `User:` line; None if there is none or several."""
    if not prompt.startswith("System: "):
        return None
    marks = [each.start() for each in re.finditer(r"\nUser: ", prompt)]
    asking = [each for each in marks if prompt.startswith("Question: ", each + len("\nUser: "))]
    cut = asking[:1] or (marks if len(marks) == 1 else [])
    if not cut:
        return None
    turns = Turns(prompt[len("System: ") : cut[0]], prompt[cut[0] + len("\nUser: ") :])
    return turns if turns.system.strip() and turns.user.strip() else None


def question_of(user: str) -> str | None:
    """The question of a user turn; None if it does not begin with one."""
    if not user.startswith("Question: "):
        return None
    return user.removeprefix("Question: ").partition(THOUGHTS)[0].partition(REFERENCE)[0].strip() or None


def question_asked(stated: object, asked: str | None, note: Notes) -> str | None:
    """The stated question if the prompts ask the same, else the one they ask: decontamination must check the question
    that is trained on."""
    question = plain(text(stated) or "", note).strip()
    if asked is None or (question and question_key(question) == question_key(asked)):
        return question or None
    if question:
        note("question_of_prompt")
    return asked


def layer_of(user: str) -> int | None:
    """Layer of a user turn's state: the number of tags in its previous thoughts. None if there are thoughts without
    tags."""
    _, any_thoughts, thoughts = user.partition(THOUGHTS)
    if not any_thoughts:
        return 0
    return len(_CLOSED.findall(thoughts.rpartition(REFERENCE)[0] or thoughts)) or None


# -- replies ---------------------------------------------------------------------------------------------------

_TAGS: tuple[ActionType, ...] = ("query", "evidence", "answer")
_ODD_TAG = re.compile(r"<[ \t]*(/?)[ \t]*(query|evidence|answer)[ \t]*>", re.IGNORECASE)
_TYPE_NAMES: dict[str, ActionType] = {
    "querygeneration": "query",
    "query": "query",
    "search": "query",
    "evidenceextraction": "evidence",
    "evidence": "evidence",
    "answergeneration": "answer",
    "answer": "answer",
}


class StepReply(NamedTuple):
    """A reply as a step: `content` is the text inside the tag."""

    response: str
    action_type: ActionType | None
    content: str | None
    parse_error: ParseFailure | None = None


def read_reply(
    response: str, note: Notes, *, stated: ActionType | None = None, content: str | None = None
) -> StepReply:
    """Parse a reply. stated, content: the file's action type and content; the reply itself overrides them."""
    if not response.strip():
        note("empty_content")
        return StepReply(response, None, None, ParseFailure(cause="empty", detail="there is no reply"))
    found = _whole_tags(response)
    if not found:
        spelled = _ODD_TAG.sub(lambda tag: f"<{tag[1]}{tag[2].lower()}>", response)
        if spelled != response and (found := _whole_tags(spelled)):
            note("tag_respelled")
            response = spelled
    if not found:
        return _unfinished(response, note, content)
    if len(found) > 1:
        note("mixed_tags")
    tag = stated if stated in found else next(iter(found))
    if not found[tag]:
        note("empty_content")
        return StepReply(response, tag, "", ParseFailure(cause="empty", detail=f"nothing stands inside <{tag}>"))
    return StepReply(response, tag, found[tag])


def _whole_tags(response: str) -> dict[ActionType, str]:
    """The content of the first complete tag of each kind."""
    found: dict[ActionType, str] = {}
    for tag in _TAGS:
        _, _, opened = response.partition(f"<{tag}>")
        inside, closed, _ = opened.partition(f"</{tag}>")
        if closed:
            found[tag] = inside.strip()
    return found


def _unfinished(response: str, note: Notes, content: str | None) -> StepReply:
    """A reply without a complete tag: closed if the file confirms that its content is complete."""
    last, tag = max((response.rfind(f"<{tag}>"), tag) for tag in _TAGS)
    if last < 0:
        note("no_tag")
        return StepReply(response, None, None, ParseFailure(cause="no_tag", detail="found no tag"))
    inside = response[last + len(f"<{tag}>") :].strip()
    if inside and content is not None and content.strip() == inside:
        note("tag_closed")
        return StepReply(f"{response.rstrip()}</{tag}>", tag, inside)
    note("no_tag")
    return StepReply(response, None, None, ParseFailure(cause="cut_off", detail=f"<{tag}> is still open at the end"))


def type_named(name: object) -> ActionType | None:
    """The action type for any known spelling of its name; None for other names."""
    if not isinstance(name, str):
        return None
    return _TYPE_NAMES.get("".join(letter for letter in name.casefold() if letter.isalpha()))


# -- values ----------------------------------------------------------------------------------------------------


def whole_number(value: object, note: Notes) -> int | None:
    """A non-negative whole number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,15}", value.strip()):
            return None
        note("number_respelled")
        return int(value)
    if isinstance(value, float):
        if not value.is_integer() or abs(value) >= _LONGEST_NUMBER:
            return None
        note("number_respelled")
    return int(value) if abs(value) < _LONGEST_NUMBER else None


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _LONGEST_NUMBER:
        return None
    return float(value) if value == value else None  # noqa: PLR0124 - NaN is not itself


def text(value: object) -> str | None:
    """A text that is not blank; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def golden_answers(value: object, note: Notes, known: KnownQuestion | None = None) -> list[str]:
    """The gold answers that are not blank, else those of the known question; empty if there are none."""
    found = _gold_answers(value, note)
    if found or known is None:
        return found
    note("golden_answers_joined")
    return known.golden_answers


def _gold_answers(value: object, note: Notes) -> list[str]:
    if single := text(value):
        note("golden_answer_alone")
        return [plain(single, note)]
    if not isinstance(value, list):
        return []
    told = [each for each in value if (isinstance(each, int | float) and not isinstance(each, bool)) or text(each)]
    return [plain(str(each), note) for each in told]
