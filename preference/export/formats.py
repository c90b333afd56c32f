"""Rows of every training format, made from pairs or paths, and LLaMA-Factory's description of them.

Decides what a row holds and in which order rows stand. `filters` decides which pairs there are, `export_pairs` which
files. Sources: RAG_ProGuide's ten fields; LLaMA-Factory's data/README (ranking, KTO); TRL's conversational preference
format.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, get_args

import orjson

from mcts.advantages import ADVANTAGES, Drawn
from preference.best_path import steps_to
from preference.candidate_records import PlainStep, QuestionRecord
from preference.filters import Candidate
from preference.records import ActionType, Message, Record

FormatName = Literal[
    "proguide",
    "turns",
    "sharegpt",
    "kto",
    "reward",
    "sft",
    "sft-chosen",
    "trl",
    "rl",
    "tools",
    "tools-sharegpt",
    "messages",
    "messages-sharegpt",
    "attempts",
    "prompts",
]
SplitName = Literal["train", "validation"]
PAIRS: tuple[FormatName, ...] = ("proguide", "turns")
"""Formats of rows with all columns, of which a data set has the first, or where prompts have many turns the second."""
CONVERSATIONS: frozenset[FormatName] = frozenset(
    {"tools", "tools-sharegpt", "messages", "messages-sharegpt", "attempts", "prompts"}
)
"""Formats whose searches are calls of a tool: who knows the agent makes their rows."""
OF_PLAIN_STEPS: frozenset[FormatName] = frozenset({"rl", "attempts", "prompts"})
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
Row: TypeAlias = dict[str, Any]

PAIRS_FILE, TURNS_FILE = "RAG_ProGuide.json", "turns.json"
"""The pairs; where prompts have many turns, which RAG_ProGuide's ten columns cannot hold, in the second file."""
DATASET = "rag_proguide"
"""Name of the pairs in `dataset_info.json`; other formats and the validation split append to it."""

ACTION_TYPE_NAMES: dict[ActionType | None, str] = {
    "query": "Query Generation",
    "evidence": "Evidence Extraction",
    "answer": "Answer Generation",
    None: "Other",
}
"""RAG_ProGuide's spelling of action types; `Other` for a reply that did not parse."""


def plain_types(text: str) -> str:
    """RAG_ProGuide's spelling replaced by the plain one, for people: `Query Generation > Other` as `query > other`."""
    for plain, name in ACTION_TYPE_NAMES.items():
        text = text.replace(name, plain or "other")
    return text


def proguide_row(each: Candidate, *, flipped: bool = False, turns: bool = False) -> Row:
    """RAG_ProGuide's ten fields in its order, then ours. flipped: whether the sides were exchanged on purpose. turns:
    whether some prompt of the data set has many turns."""
    chosen, rejected, state, pair = each.chosen, each.rejected, each.state, each.pair
    sides = ("chosen", chosen), ("rejected", rejected)
    return {
        **_asked(state.prompt, turns=turns),
        "prompt": "\n".join(f"{turn.role.capitalize()}: {turn.content}" for turn in state.prompt),
        **{side: step.response for side, step in sides},
        "chosen_action_type": ACTION_TYPE_NAMES[chosen.action_type],
        "chosen_content": chosen.content or "",
        "rejected_action_type": ACTION_TYPE_NAMES[rejected.action_type],
        "rejected_content": rejected.content or "",
        "layer": state.layer,
        "pair_id": pair.pair_id,
        **_fields(state, ("state_id", "question_id", "question", "golden_answers")),
        **_fields(state.origin, _ORIGIN_COLUMNS),
        "label": pair.label,
        "flipped": flipped,
        **{f"{side}_{name}": getattr(step, name) for name in ("id", "reward") for side, step in sides},
        **_fields(pair, ("margin", "confidence", "similarity", "same_type", "tags", "gold")),
        **{f"{side}_{name}": getattr(step, name) for name in _STEP_COLUMNS for side, step in sides},
        "prompt_tokens": state.tokens,
        **{f"{side}_tokens": step.tokens for side, step in sides},
    }


_ORIGIN_COLUMNS = ("dataset", "split", "revision", "config_hash", "seed", "recipe", "reward", "teacher", "renderer")
_STEP_COLUMNS = ("grounded", "gold", "visits", "rollouts", "observations")
"""Columns that both sides have; the chosen side's come first."""
_SFT_ORIGIN_COLUMNS = ("dataset", "split", "revision", "config_hash", "renderer")
_PROMPT = ("instruction", "input", "history")


def _asked(prompt: Sequence[Message], *, turns: bool) -> Row:
    """A prompt as columns: the system turn, the last user turn, and with `turns` those between, each with its reply."""
    system, *between, user = (turn.content for turn in prompt)
    history = [list(each) for each in zip(between[::2], between[1::2], strict=True)]
    return {"instruction": system, "input": user} | ({"history": history} if turns else {})


def messages_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The prompt of a row as a conversation. Raises KeyError, TypeError and ValueError for a row of others."""
    said = [text for asked, reply in row.get("history") or () for text in (asked, reply)]
    texts = row["instruction"], *said, row["input"]
    roles = ["system", *("assistant" if number % 2 else "user" for number in range(len(texts) - 1))]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


def _fields(record: Record, names: Sequence[str]) -> Row:
    return {name: getattr(record, name) for name in names}


_COLUMNS = """
string: instruction input prompt chosen rejected
string: chosen_action_type chosen_content rejected_action_type rejected_content
int32: layer
string: pair_id state_id question_id question
list<string>: golden_answers
string: dataset split revision config_hash
int64: seed
string: recipe reward teacher renderer label
bool: flipped
int64: chosen_id rejected_id
double: chosen_reward rejected_reward margin confidence similarity
bool: same_type
list<string>: tags
string: gold
bool: chosen_grounded rejected_grounded
int64: chosen_gold rejected_gold chosen_visits rejected_visits chosen_rollouts rejected_rollouts
double: chosen_observations rejected_observations
int64: prompt_tokens chosen_tokens rejected_tokens
"""
COLUMNS: dict[str, str] = {
    name: kind for kind, _, names in (line.partition(": ") for line in _COLUMNS.split("\n")) for name in names.split()
}
"""Arrow type of every column of a row, in order, so that a column of nulls is typed too."""


def _sharegpt_row(row: Row) -> Row:
    names = {"user": "human", "assistant": "gpt"}
    turns = [{"from": names[each["role"]], "value": each["content"]} for each in messages_of(row)[1:]]
    sides = {side: {"from": "gpt", "value": row[side]} for side in _SIDES}
    return {"conversations": turns, "system": row["instruction"], **sides, "pair_id": row["pair_id"]}


def _reward_row(row: Row) -> Row:
    sides = {side: {"role": "assistant", "content": row[side]} for side in _SIDES}
    return {"messages": messages_of(row), **sides, "margin": row["margin"], "pair_id": row["pair_id"]}


def _trl_row(row: Row) -> Row:
    sides = {side: [{"role": "assistant", "content": row[side]}] for side in _SIDES}
    return {"prompt": messages_of(row), **sides, "pair_id": row["pair_id"]}


def kto_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """Every reply of a question's pairs once, labelled desirable or not; those that are both are left out."""
    sides: dict[tuple[str, str], set[str]] = {}
    for row, side in product(rows, ("chosen", "rejected")):
        sides.setdefault((row["state_id"], row[side]), set()).add(side)
    prompts = {row["state_id"]: row for row in rows}
    for (state_id, reply), taken in sides.items():
        if len(taken) == 1:
            row = prompts[state_id]
            yield {
                **{name: row[name] for name in _PROMPT if name in row},
                "output": reply,
                "kto_tag": taken == {"chosen"},
                "state_id": state_id,
                "question_id": row["question_id"],
            }


def sft_rows(question: QuestionRecord, *, turns: bool = False) -> Iterator[Row]:
    """The steps of a question's best path, each a prompt and its reply. turns: as of `proguide_row`."""
    for step in question.path or ():
        yield {
            **_asked(step.prompt, turns=turns),
            "output": step.response,
            "action_type": ACTION_TYPE_NAMES[step.action_type],
            "layer": step.layer,
            "question_id": question.question_id,
            **_fields(question.origin, _SFT_ORIGIN_COLUMNS),
        }


def rl_rows(question: QuestionRecord) -> Iterator[Row]:
    """The plain steps of a question with what policy gradients take; docs/reference/formats/rl.md has the columns."""
    steps = question.plain_steps
    drawn = [
        Drawn(each.id, each.parent_id, each.state_id, each.response, each.draws, each.value, each.outcome)
        for each in steps
    ]
    advantages = {name: of(drawn) for name, of in ADVANTAGES.items()}
    by_id, below = {each.id: each for each in steps}, defaultdict[int, list[PlainStep]](list)
    for end in (each for each in steps if each.outcome is not None):
        for each in steps_to(by_id, end):
            below[each.id].append(end)
    for number, each in enumerate(steps):
        ends = below[each.id]
        attempts = sum(end.draws for end in ends)
        yield {
            "prompt": [turn.model_dump() for turn in each.prompt],
            "completion": [{"role": "assistant", "content": each.response}],
            "state_id": each.state_id,
            "step_id": each.id,
            "attempts": [end.id for end in ends],
            "group": question.group,
            **_fields(each, ("draws", "layer")),
            "action_type": ACTION_TYPE_NAMES[each.action_type],
            "outcome": sum(end.draws * (end.outcome or 0.0) for end in ends) / attempts if attempts else None,
            "value": each.value,
            "advantages": {name: of[number] for name, of in advantages.items()},
            "score": each.critic_score,
            **_fields(question, ("question_id", "question")),
            **_fields(question.origin, (*_SFT_ORIGIN_COLUMNS, "seed", "recipe", "teacher", "value_model")),
        }


def sft_chosen_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """Every reply that is chosen in a state, once; also one that another pair of the state rejects.

    Source: the SFT arm of arXiv 2505.14069, Table 3, which takes the chosen side of every pair.
    """
    firsts: dict[tuple[str, str], Row] = {}
    for row in rows:
        firsts.setdefault((row["state_id"], row["chosen"]), row)
    for row in firsts.values():
        yield {
            **{name: row[name] for name in _PROMPT if name in row},
            "output": row["chosen"],
            "action_type": row["chosen_action_type"],
            **{name: row[name] for name in ("layer", "state_id", "question_id", *_SFT_ORIGIN_COLUMNS)},
        }


@dataclass(frozen=True)
class Format:
    """A file of the data set: how a question's RAG_ProGuide rows become its rows, and its entry for LLaMA-Factory.

    convert: None if rows are not made from pairs. info: None if LLaMA-Factory does not read the format.
    """

    train: str
    """Its file of the training part."""
    convert: Callable[[Sequence[Row]], Iterable[Row]] | None
    info: dict[str, Any] | None

    def file_name(self, split: SplitName) -> str:
        return self.train if split == "train" else self.train.replace(".", f".{split}.")


_SYSTEM_AND_PROMPT = {"system": "instruction", "prompt": "input"}
_SIDES = {"chosen": "chosen", "rejected": "rejected"}
_SFT: dict[str, Any] = {"columns": _SYSTEM_AND_PROMPT | {"response": "output"}}
_PAIRS: dict[str, Any] = {"ranking": True, "columns": _SYSTEM_AND_PROMPT | _SIDES}
"""LLaMA-Factory's default columns would glue the instruction into the user turn."""
_OF_CHATS: dict[str, Any] = {"formatting": "sharegpt", "ranking": True}
_OPENAI_TURNS: dict[str, Any] = {
    "columns": {"messages": "messages"} | _SIDES,
    "tags": {f"{each}_tag": each for each in ("role", "content", "user", "assistant", "system")},
}
"""Keys and roles of turns that are not ShareGPT's."""
_TURNS = {"messages": "conversations", "system": "system"}
_CALLS = _TURNS | {"tools": "tools"}

FORMATS: dict[FormatName, Format] = {
    "proguide": Format(PAIRS_FILE, list, _PAIRS),
    "sharegpt": Format("sharegpt.json", partial(map, _sharegpt_row), _OF_CHATS | {"columns": _TURNS | _SIDES}),
    "kto": Format("kto.json", kto_rows, {"columns": _SYSTEM_AND_PROMPT | {"response": "output", "kto_tag": "kto_tag"}}),
    "reward": Format("reward.json", partial(map, _reward_row), _OF_CHATS | _OPENAI_TURNS),
    "sft": Format("sft.json", None, _SFT),
    "sft-chosen": Format("sft-chosen.json", sft_chosen_rows, _SFT),
    "trl": Format("trl.jsonl", partial(map, _trl_row), None),
    "rl": Format("rl.jsonl", None, None),
    "turns": Format(TURNS_FILE, list, _PAIRS),
    "tools": Format("tools.jsonl", None, None),
    "tools-sharegpt": Format("tools-sharegpt.json", None, _OF_CHATS | {"columns": _CALLS | _SIDES}),
    "messages": Format("messages.jsonl", None, None),
    "messages-sharegpt": Format("messages-sharegpt.json", None, {"formatting": "sharegpt", "columns": _CALLS}),
    "attempts": Format("attempts.jsonl", None, None),
    "prompts": Format("prompts.jsonl", None, None),
}


def pairs_files(directory: Path) -> dict[SplitName, Path]:
    """The existing pair files of a data set, by split."""
    places = [(split, directory / FORMATS[name].file_name(split)) for name in PAIRS for split in SPLITS]
    return {split: path for split, path in places if path.is_file()}


def dataset_info(written: Iterable[tuple[FormatName, SplitName]], *, turns: bool = False) -> dict[str, Any]:
    """LLaMA-Factory's description of the written files, by the name that `dataset:` refers to."""
    entries = {}
    for name, split in written:
        if (info := FORMATS[name].info) is not None:
            history = {"history": "history"} if turns and "prompt" in info["columns"] else {}
            place = {"file_name": FORMATS[name].file_name(split)}
            entries[dataset_name(name, split)] = place | info | {"columns": info["columns"] | history}
    return entries


def dataset_name(name: FormatName, split: SplitName = "train") -> str:
    """Its name in LLaMA-Factory: `rag_proguide`, `rag_proguide_validation`, `rag_proguide_sft_chosen`, .."""
    parts = [DATASET, *([] if name in PAIRS else [name]), *([] if split == "train" else [split])]
    return "_".join(parts).replace("-", "_")


class JsonRows:
    """A JSON list with one row per line, or JSON lines, and the SHA-256 of its bytes."""

    def __init__(self, file: BinaryIO, *, listed: bool) -> None:
        self.rows = 0
        self.digest = hashlib.sha256()
        self._file = file
        self._listed = listed

    def write(self, row: Row) -> None:
        if self._listed:
            self._add((b",\n" if self.rows else b"[\n") + orjson.dumps(row))
        else:
            self._add(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        self.rows += 1

    def finish(self) -> None:
        if self._listed:
            self._add(b"\n]\n" if self.rows else b"[]\n")

    def _add(self, content: bytes) -> None:
        self.digest.update(content)
        self._file.write(content)


class SpacedByState(JsonRows):
    """Keeps rows of one state apart where possible: each waits until a row of another state was written.

    KTO trainers (LLaMA-Factory and TRL) pair each prompt with the previous row's reply to estimate the KL divergence; a
    sibling's reply would match the prompt and spoil that estimate.
    """

    def __init__(self, file: BinaryIO, *, listed: bool) -> None:
        super().__init__(file, listed=listed)
        self._waiting: list[Row] = []
        self._last: str | None = None

    def write(self, row: Row) -> None:
        self._waiting.append(row)
        while (another := next((row for row in self._waiting if row["state_id"] != self._last), None)) is not None:
            self._waiting.remove(another)
            super().write(another)
            self._last = another["state_id"]

    def finish(self) -> None:
        for row in self._waiting:
            super().write(row)
        super().finish()
