"""The provenance of a model: what a training writes into the model's folder and an evaluation reads back.

Decides the file, `reasonrag.json`, and what it must record so that a model is prompted as in training and never
evaluated on its training questions. Knows neither trainers nor evaluations; see `prompt_parity` for data sets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, Field

from preference.candidate_records import QuestionRecord, is_training_split, question_key, read_lines
from preference.export.private_files import write_json
from preference.export.summary import QUESTIONS, held_out_keys
from preference.records import AbsentIfEmpty, AbsentIfNone, Record
from reasonrag.agent.settings import OURS
from reasonrag.data.questions import SHORT
from reasonrag.data.settings import ATLAS, HUB_SPLITS
from reasonrag.files import read_record
from reasonrag.llm.critic import CriticFacts
from reasonrag.model_folder import PROVENANCE
from reasonrag.rendering import Line, next_command

_SPLITS: Final = {**HUB_SPLITS, ATLAS: ("dev",)}
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
"""Checkpoint folders that the trainer makes in its output."""


class TrainingConditions(Record, extra="forbid"):
    """How a model must be prompted; each with every value that the data have, null for an unknown one.

    Those of SHOWN_PLAINLY have null for the usual value, and are empty, and absent from the file, if all had that.
    """

    renderer: str | None = None
    """Hash of prompts and layout, `prompting.renderer_hash`."""
    top_k: tuple[int | None, ...] = ()
    retriever: tuple[str | None, ...] = ()
    max_steps: tuple[int | None, ...] = ()
    max_passage_chars: AbsentIfEmpty[tuple[int | None, ...]] = ()
    passage_order: AbsentIfEmpty[tuple[str | None, ...]] = ()
    style: AbsentIfEmpty[tuple[str | None, ...]] = ()
    agent: AbsentIfEmpty[tuple[str | None, ...]] = ()
    reader: AbsentIfEmpty[tuple[str | None, ...]] = ()
    warnings: tuple[str, ...] = Field(default=(), exclude=True)
    """What of the data could not be checked; not in the file."""

    def objections(
        self, *, renderer: str, top_k: int, max_steps: int, **shown: int | str | None
    ) -> list[tuple[str, str]]:
        """Conditions that would differ from training, of those known: name and sentence.

        shown: conditions of `SHOWN_PLAINLY`, unless they have their usual value.
        """
        found = []
        if self.renderer is not None and self.renderer != renderer:
            found.append(
                ("renderer", f"it was trained on prompts of renderer {self.renderer}, and would be given {renderer}")
            )
        for name, trained, now in (("top_k", self.top_k, top_k), ("max_steps", self.max_steps, max_steps)):
            known = [each for each in trained if each is not None]
            if known and now not in known:
                values = " or ".join(map(str, known))
                found.append((name, f"{name} was {values} when its data were made, and is {now} now"))
        for name, what in SHOWN_PLAINLY.items() if self.knows_passages else ():
            trained_with = getattr(self, name) or (None,)
            if shown.get(name) not in trained_with:
                before, at_present = " or ".join(map(what.said, trained_with)), what.said(shown.get(name))
                found.append((name, f"{what.of} were {before} when its data were made, and are {at_present} now"))
        return found

    @property
    def knows_passages(self) -> bool:
        """Whether it is known how passages were shown."""
        return any(each is not None for each in self.top_k)


class _Plainly(NamedTuple):
    """A condition with a usual value, which records leave out. usual: that value, in words."""

    of: str
    usual: str
    other: str

    def said(self, value: object) -> str:
        return self.usual if value is None else self.other.format(value)


SHOWN_PLAINLY: Final = {
    "max_passage_chars": _Plainly("passages", "whole", "cut at {:,} characters"),
    "passage_order": _Plainly("passages", "best-first", "{}"),
    "style": _Plainly("answers", SHORT, "{}"),
    "agent": _Plainly("the agent's steps", f"those of {OURS}", "those of {}"),
    "reader": _Plainly("its queries", "answered by no reader", "answered by {}"),
}
"""Conditions that records hold only where they are not the usual ones."""


class Provenance(BaseModel, frozen=True, extra="forbid"):
    """Content of `reasonrag.json` in a model's folder."""

    schema_version: Literal["reasonrag.model/1"] = "reasonrag.model/1"
    base_model: str
    """The model the training started from: a folder, or a name on the Hub."""
    stage: str
    """sft, dpo, rm, kto, ..; export for merged weights."""
    stages: list[str] = []
    """Stages of all its trainings, oldest first, those of its base included."""
    finetuning_type: str
    asked: TrainingConditions = TrainingConditions()
    data: list[str] = []
    """Data sets, oldest first, including those of the base model."""
    splits: list[str] = []
    """dataset/split of every question trained on."""
    questions: list[str] = Field(default=[], repr=False)
    """`question_key` of every question trained on, sorted."""
    config_hash: str = ""
    """Hash of the resolved configuration."""
    versions: dict[str, str] = {}
    critic: AbsentIfNone[CriticFacts] = None
    """Of a critic, which scores steps; absent from the file of other models."""

    @property
    def evaluation_splits(self) -> list[str]:
        """Its splits that are not training splits."""
        return [each for each in self.splits if not is_training_split(each)]

    def trained_on(self, questions: Iterable[str]) -> list[str]:
        """The questions among these, by their text, that the model was trained on."""
        keys = set(self.questions)
        return [each for each in questions if question_key(each) in keys]

    def after(self, before: Sequence[Provenance]) -> Provenance:
        """The same, with the trainings, data and questions of those that it was trained from, oldest first."""
        return self.model_copy(
            update={
                "stages": [*(before[-1].stages if before else []), self.stage],
                "data": list(dict.fromkeys(name for each in (*before, self) for name in each.data)),
                "splits": sorted({name for each in (*before, self) for name in each.splits}),
                "questions": sorted({key for each in (*before, self) for key in each.questions}),
            }
        )

    def write(self, folder: Path) -> None:
        write_json(folder / PROVENANCE, self.model_dump(mode="json"), shared=True)


def find_provenance(folder: Path) -> Path | None:
    """The provenance file of a model's folder: its own, or for a `checkpoint-N` that of the training around it."""
    own = folder / PROVENANCE
    if not own.exists() and CHECKPOINT.fullmatch(folder.absolute().name):
        own = folder.absolute().parent / PROVENANCE
    return own if own.exists() else None


def read_provenance(folder: Path) -> Provenance | None:
    """The provenance of a model's folder; None if there is none. Raises InputError for a damaged file."""
    advice = "Remove it to continue without checking how and on what the model was trained"
    return read_record(path, Provenance, advice, most=1 << 28) if (path := find_provenance(folder)) else None


def question_keys(data_set: Path) -> tuple[list[str], dict[str, int]]:
    """The keys of a data set's questions, but for those that are held out, and their number by split; both empty for a
    folder without questions.jsonl. Raises MalformedCandidatesError for a damaged file.
    """
    path = data_set / QUESTIONS
    if not path.is_file():
        return [], {}
    keys, splits = set[str](), Counter[str]()
    held_out = held_out_keys(data_set)
    for question in read_lines(path, QuestionRecord):
        if question.error is None and (key := question_key(question.question)) not in held_out:
            keys.add(key)
            splits[f"{question.origin.dataset}/{question.origin.split}"] += 1
    return sorted(keys), dict(sorted(splits.items()))


def evaluation_of(model: Path) -> Line:
    """The command: on a split of the data set that it was trained on, if that has one, else on the user's questions."""
    known = read_provenance(model)
    names = {each.rpartition("/")[0] for each in known.splits} if known else set()
    held_back = [(name, split) for name in names for split in ("dev", "test") if split in _SPLITS.get(name, ())]
    if len(names) == 1 and held_back:
        [(name, split), *_] = held_back
        return next_command("evaluate", "--model", model, "--dataset", name, "--split", split)
    return next_command("evaluate", "--model", model, "--questions", "QUESTIONS.jsonl", "--corpus", "CORPUS.jsonl")
