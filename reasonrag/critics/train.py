"""`reasonrag train-critic`: a configuration and a data set become a critic that says what it was trained on.

Decides what a critic learns from, that folds make several, and which questions are in which fold, by a hash of the
question alone. The training itself is `stages.trl`'s; neither tokens nor losses are known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from preference.candidate_records import QuestionRecord, question_key, read_lines
from preference.export.formats import PAIRS_FILE, SplitName, messages_of, pairs_files
from preference.export.summary import QUESTIONS
from reasonrag.critics.settings import TrainCriticSettings
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.llm.critic import CriticFacts
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.rendering import Part, next_command
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.llamafactory.dataset_info import rows_in
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.stages.training import TrainingResult, given
from reasonrag.training.stages.trl import CRITIC, Plan, Rows, plan_training, train_plan


class CriticResult(TrainingResult):
    """What `train-critic` did; the object of `train-critic --json`."""

    folds: list[CriticResult] = []  # noqa: RUF012 - pydantic copies it
    """With --folds, one critic each; the other fields are then of the first."""

    def _told(self) -> Iterator[Part]:
        for each in self.folds:
            yield from each._told()
        if not self.folds:
            yield from super()._told()

    def _next(self) -> Iterator[Part]:
        if self.folds:
            critics = (word for each in self.folds for word in ("--critic", each.out))
            yield next_command("pairs", "RUN", "--consensus", *critics)
        else:
            yield next_command("evaluate-critic", self.out, "RUN")


@public_call(TrainCriticSettings)
def train_critic(
    config: str | Path | None = None, *, dry_run: bool = False, watcher: JobWatcher | None = None, **flags: Any
) -> CriticResult:
    """Train a critic, a model that scores steps, on a data set with TRL.

    Raises InputError before anything is started, TrainingFailed if the training exits with an error, KeyboardInterrupt
    after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train_critic("qwen2.5-7b", data="data/first", out="critics/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(TrainCriticSettings, "train-critic", given(config, flags))
    watcher = watcher or SilentWatcher()
    plan = plan_training(CRITIC, settings, Path("critics"))
    if not settings.folds:
        return _train(plan, None, watcher, dry_run=dry_run)
    parts = [Fold(number, settings.folds) for number in range(1, settings.folds + 1)]
    found = [
        _train(replace(plan, out=plan.out / f"fold-{part.number}"), part, watcher, dry_run=dry_run) for part in parts
    ]
    return found[0].model_copy(update={"folds": found, "out": str(plan.out)})


def _train(plan: Plan, fold: Fold | None, watcher: JobWatcher, *, dry_run: bool) -> CriticResult:
    """fold: whose questions are left out. Raises what `train_critic` does."""
    folder = plan.data.directory
    rows, held_out = (read_rows(folder, split, fold) for split in ("train", "validation"))
    rows_of_it = Rows(
        rows.rows,
        held_out.rows,
        [*pairs_files(folder).values()],
        rows.questions | (held_out.questions if plan.config.get("load_best_model_at_end") else frozenset()),
        {"labels": "+".join(sorted(rows.labels))},  # outcome only if all rows are labelled by it
        {"fold": [fold.number, fold.count] if fold else None},
    )
    return train_plan(plan, rows_of_it, watcher, CriticResult, conclude=_facts, dry_run=dry_run)


def _facts(record: TrainingRecord) -> dict[str, Any]:
    told = {name: value for name, value in record.lengths.items() if name in CriticFacts.model_fields}
    return {"critic": CriticFacts(labels=record.data["labels"], **told)}


@dataclass(frozen=True)
class Fold:
    """One of `count` parts of the questions, from 1; a critic of it is trained on the other parts."""

    number: int
    count: int

    def holds(self, key: str) -> bool:
        """key: `question_key` of the question."""
        lot = int.from_bytes(hashlib.sha256(f"fold {key}".encode()).digest()[:8])
        return lot % self.count == self.number - 1


@dataclass(frozen=True)
class CriticRows:
    """Rows as `training_script` takes them. questions: keys of theirs. labels: what they were labelled by."""

    rows: list[dict[str, Any]]
    questions: frozenset[str]
    labels: frozenset[str]


def read_rows(data: Path, split: SplitName, fold: Fold | None) -> CriticRows:
    """The rows of a split, but for the questions of the fold. Raises InputError for damaged rows, and for no pairs."""
    path = pairs_files(data).get(split)
    if path is None and split == "train":
        raise InputError(
            f"{data} has no {PAIRS_FILE}, which a critic is trained on: reasonrag pairs {data} --out {data}"
        )
    rows, questions, labels = [], set[str](), set[str]()
    with explained_records():
        asked = read_lines(data / QUESTIONS, QuestionRecord) if (data / QUESTIONS).is_file() else ()
        keys = {each.question_id: question_key(each.question) for each in asked}
    for row in rows_in(path) if path else ():
        try:
            key = question_key(row["question"]) if "question" in row else keys[row["question_id"]]
            if fold and fold.holds(key):
                continue
            rows.append(_pair(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: a row has no {error}; make it again: reasonrag pairs") from error
        questions.add(key)
        labels.add(str(row.get("label")))
    return CriticRows(rows, frozenset(questions), frozenset(labels))


def _pair(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": messages_of(row),
        "chosen": row["chosen"],
        "rejected": row["rejected"],
        # of the exchanged sides where `pairs --flip` did so; a judge may disagree with the values, an import has none
        "margin": max(0.0, float(row["margin"] or 0.0) * (-1 if row.get("flipped") else 1)),
    }
