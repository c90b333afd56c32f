"""A run or a data set in numbers: what `stats` prints and the first page of `view` draws.

Counts what the files hold, also for an unfinished run without a summary. Knows neither pages nor terminals.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import orjson
from pydantic import BaseModel

from preference import Usage
from preference.candidate_records import Origin, is_training_split
from preference.causes import CauseCount, CauseCounts
from preference.export.summary import EffectiveSize, GoldAgreement, gold_agreement
from preference.filters import DROP_REASONS
from preference.labelled_runs import rare_garbage_collection
from preference.records import AbsentIfEmpty, ActionType
from preference.statistics import Bin, SignAgreement
from reasonrag.exploration.summary import HELD_OUT, RunCounts, mean
from reasonrag.files import readable
from reasonrag.viewing.collection import Collection, ExploredQuestion
from reasonrag.viewing.evaluations import records_in
from reasonrag.viewing.question_rows import PairRow, QuestionRow, capped_row, question_row

Edges: TypeAlias = np.ndarray[Any, Any]
BINS, WHOLE_BINS = 20, 40
SHARES = np.arange(BINS + 1) / BINS
"""Edges of histograms of values between 0 and 1."""


class Histogram(BaseModel):
    """Counts per bin; a bin includes its lower edge, the last one its upper edge too."""

    edges: list[float]
    counts: list[int]


class TreeFacts(BaseModel):
    """What trees tell beyond their pairs; for runs only. Fields as in the run's `summary.json`."""

    steps: int
    continuations: int
    mean_f1: float | None
    mean_em: float | None
    mean_outcome: float | None
    degenerate: dict[str, int]
    parse_failures_by_cause: dict[str, int]
    repair_turns: int
    causes: list[CauseCount] = []
    """Where questions die. Their questions add up to those that were explored."""


class Checked(BaseModel):
    """What fresh continuations said of labels: of `reasonrag calibrate`'s report. source: that file."""

    source: str
    k: int
    pairs: int
    confirmed: SignAgreement
    reliability: list[Bin]


class Overview(BaseModel):
    """The object of `stats --json`. Histograms by name: `reward_query`, `reward_evidence`, `reward_answer` (steps of
    the trees, or of the states), `margin`, `confidence` (kept pairs), `chosen`, `rejected` (lengths of their
    replies in `length_unit`). records: as `records_in` finds them."""

    kind: Literal["run", "data set"]
    path: str
    splits: list[str]
    recipes: list[str]
    rewards: list[str]
    agents: AbsentIfEmpty[list[str]] = []
    """Without ours."""
    teachers: list[str]
    questions: int
    ends: dict[str, int]
    """Questions by the outcomes of their continuations: `mixed`, `all_right`, `all_wrong`, `unknown`; `failed`."""
    failures_by_cause: dict[str, int]
    questions_with_a_pair: int
    candidates: int
    pairs: int
    pairs_by_layer: dict[str, dict[str, int]]
    """By layer and action type of the chosen step."""
    pairs_by_label: dict[str, int]
    pairs_by_tag: dict[str, int]
    gold_agreement: dict[str, GoldAgreement]
    mean_margin: float | None
    mean_confidence: float | None
    dropped: dict[str, int]
    doubtful: int
    """Kept pairs whose label needs review (`explanations.cautions`)."""
    usage: Usage | None
    """Null where it is not known."""
    histograms: dict[str, Histogram]
    length_unit: Literal["tokens", "words"]
    trees: TreeFacts | None
    rules: dict[str, Any]
    """Filters that made the pairs."""
    effective: EffectiveSize | None = None
    """Of the pairs of a data set."""
    contamination: dict[str, Any] = {}
    """Of a data set: as in its summary."""
    calibration: Checked | None = None
    warnings: list[str]
    records: dict[str, Any] = {}


@rare_garbage_collection()
def read_all(collection: Collection, *, watch: Callable[[float], None]) -> OverviewCounts:
    """Every question as a row of the list, and the counts of all. watch: is told the share that was read."""
    counts = OverviewCounts(collection)
    for explored in collection.scan():
        counts.add(explored)
        watch(collection.scanned)
    return counts


class OverviewCounts:
    """Collects rows of the list and an overview question by question."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.by_number: dict[int, QuestionRow] = {}
        self.run = RunCounts()
        self._where = CauseCounts()
        self._origins = set[Origin]()
        self.usage: Usage | None = Usage(cost_usd=0.0)
        self._rewards = {action_type: array("d") for action_type in get_args(ActionType)}

    def add(self, explored: ExploredQuestion) -> None:
        """Count a question; of one that failed, and was explored later, the later row stays."""
        self.by_number[explored.number] = question_row(explored)
        for question in explored.questions:
            self._origins.add(question.origin)
            self.usage = self.usage + question.usage if self.usage and question.usage else None
        for tree in explored.trees:
            self.run.add(tree.record)
            self._where.add(tree.record)
        self._add_steps(explored)

    def _add_steps(self, explored: ExploredQuestion) -> None:
        """Count the rewards of all steps of the trees; without trees, those of the states that have pairs."""
        if explored.trees:
            steps = [(node.action_type, node.reward) for tree in explored.trees for node in tree.record.nodes[1:]]
        else:
            states = {id(each.state): each.state for each in explored.candidates}
            steps = [(step.action_type, step.reward) for state in states.values() for step in state.steps]
        for action_type, reward in steps:
            if action_type is not None and reward is not None:
                self._rewards[action_type].append(reward)

    # -- the result --------------------------------------------------------------------------------------------

    def rows(self) -> list[QuestionRow]:
        """Those of all questions so far, in order; caps on the whole data set apply once all of it was scanned."""
        return [capped_row(self.by_number[number], self._collection.capped) for number in sorted(self.by_number)]

    def overview(self) -> Overview:
        """The overview of these rows."""
        collection, rows, run = self._collection, self.rows(), self.run
        kept = [pair for row in rows for pair in row.kept]
        unit: Literal["tokens", "words"]
        unit = "words" if not kept or any(None in pair.tokens for pair in kept) else "tokens"
        values: dict[str, Sequence[float]] = {f"reward_{name}": each for name, each in self._rewards.items()}
        for name in ("margin", "confidence"):
            values[name] = [each for pair in kept if (each := getattr(pair, name)) is not None]
        for place, name in enumerate(("chosen", "rejected")):
            values[name] = [getattr(pair, unit)[place] for pair in kept]
        calibration, unreadable = _checked(collection)
        dropped = Counter(pair.dropped for row in rows for pair in row.candidates if pair.dropped)
        return Overview(
            kind=collection.kind,
            path=readable(str(collection.path)),
            splits=self._splits(),
            recipes=self._named("recipe"),
            rewards=self._named("reward"),
            agents=self._named("agent"),
            teachers=self._named("teacher") or sorted(collection.teachers),
            questions=len(rows),
            ends=dict(Counter(row.ends for row in rows).most_common()),
            failures_by_cause=dict(Counter(row.cause for row in rows if row.cause).most_common()),
            questions_with_a_pair=sum(row.pairs > 0 for row in rows),
            candidates=sum(len(row.candidates) for row in rows),
            pairs=len(kept),
            pairs_by_layer=_by_layer(kept),
            pairs_by_label=dict(Counter(pair.label for pair in kept)),
            pairs_by_tag=dict(Counter(tag for pair in kept for tag in pair.tags)),
            gold_agreement=gold_agreement(Counter((pair.type or "unreadable", pair.gold) for pair in kept)),
            mean_margin=mean(sum(values["margin"]), len(values["margin"])),
            mean_confidence=mean(sum(values["confidence"]), len(values["confidence"])),
            dropped={reason: dropped[reason] for reason in DROP_REASONS if dropped[reason]},
            doubtful=sum(row.review for row in rows),
            usage=self.usage if self.usage and self.usage.calls else None,
            histograms=_histograms(values),
            length_unit=unit,
            trees=TreeFacts(steps=run.nodes - run.done, causes=self._where.rows(), **run.of_trees)
            if collection.kind == "run"
            else None,
            rules=collection.rules.flags,
            effective=collection.summary.effective if collection.summary else None,
            contamination=collection.summary.contamination if collection.summary else {},
            calibration=calibration,
            warnings=[*self._warnings(), *unreadable],
            records=records_in(collection.path),
        )

    def _splits(self) -> list[str]:
        return sorted({f"{each.dataset}/{each.split}" for each in self._origins})

    def _named(self, field: str) -> list[str]:
        """What the origins of the questions have there."""
        return sorted({value for each in self._origins if (value := getattr(each, field))})

    def _warnings(self) -> list[str]:
        if (made := self._collection).kind == "data set":
            return made.warnings
        held_out = [HELD_OUT.format(split) for split in self._splits() if not is_training_split(split)]
        return held_out + self.run.warnings(made.max_tokens, cut_from=made.cut_from)


def _checked(collection: Collection) -> tuple[Checked | None, list[str]]:
    """Of the first report on these labels that is there, and of which ones cannot be read."""
    unreadable = list[str]()
    for file in (each for each in collection.calibrations if each.is_file()):
        try:
            told = orjson.loads(file.read_bytes())
            of = told["settings"].get("data")  # of the rows of which data set
            if of is None or Path(of).resolve() == collection.path.resolve():
                return Checked.model_validate({**told["revaluation"], "source": readable(str(file))}), unreadable
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            unreadable.append(f"{file} is not a report of reasonrag calibrate, and is not shown")
    return None, unreadable


def _by_layer(kept: Sequence[PairRow]) -> dict[str, dict[str, int]]:
    layers = sorted({pair.layer for pair in kept})
    return {str(at): dict(Counter(pair.type or "unreadable" for pair in kept if pair.layer == at)) for at in layers}


# -- histograms ------------------------------------------------------------------------------------------------


def _histograms(values: Mapping[str, Sequence[float]]) -> dict[str, Histogram]:
    """Those for which there are values."""
    lengths = whole_edges(max([0, *values["chosen"], *values["rejected"]]))
    edges = {"margin": edges_around(values["margin"]), "chosen": lengths, "rejected": lengths}
    return {name: histogram(each, edges.get(name, SHARES)) for name, each in values.items() if each}


def histogram(values: Sequence[float], edges: Edges) -> Histogram:
    return Histogram(edges=edges.tolist(), counts=np.histogram(values, bins=edges)[0].tolist())


def edges_around(values: Sequence[float]) -> Edges:
    """Those of `SHARES`, extended on either side as far as the values go."""
    first, last = math.floor(min([0.0, *values]) * BINS), math.ceil(max([1.0, *values]) * BINS)
    return np.arange(first, last + 1) / BINS


def whole_edges(longest: float) -> Edges:
    """Edges for whole numbers, from 0, at most `WHOLE_BINS` bins of a round width."""
    widths = (digit * 10**power for power in count() for digit in (1, 2, 5))
    width = next(each for each in widths if each * WHOLE_BINS > longest)
    return np.arange(0, longest + width + 1, width)
