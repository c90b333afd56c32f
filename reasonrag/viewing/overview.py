"""A run or a data set in numbers: what `stats` prints and the first page of `view` draws.

Counts what the files hold, also for an unfinished run without a summary. Knows neither pages nor terminals.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

from preference import Candidate, DropReason, GoldAgreement, Usage
from preference.candidates import GoldVerdict, QuestionRecord
from preference.causes import CauseCount, CauseCounts
from preference.export.summary import gold_agreement
from preference.filters import DROP_REASONS
from preference.labelled_runs import without_cycle_collection
from reasonrag.curation.audit.dataset_checks import histogram, whole_edges
from reasonrag.curation.audit.report import Histogram
from reasonrag.exploration.summary import RunCounts, counted_ends, mean
from reasonrag.viewing.collection import Collection, ExploredQuestion
from reasonrag.viewing.explanations import cautions
from reasonrag.viewing.question_rows import QuestionRow, capped_row, question_row

BINS = 20
WIDTH = 1 / BINS
SHARES = tuple(round(each * WIDTH, 2) for each in range(BINS + 1))
"""Edges of histograms of values between 0 and 1."""
_REWARDS = ("reward_query", "reward_evidence", "reward_answer")


class TreeFacts(BaseModel):
    """What trees tell beyond their pairs; for runs only. Fields as in the run's `summary.json`."""

    steps: int
    continuations: int
    mean_f1: float | None
    mean_em: float | None
    mean_outcome: float | None
    diversity_by_layer: dict[str, float]
    degenerate: dict[str, int]
    parse_failures_by_cause: dict[str, int]
    repair_turns: int
    ends_by_steps: dict[str, dict[str, int]]
    """Continuations from the question on, by their steps and by their result."""
    causes: list[CauseCount] = []
    """Where questions die. Their questions add up to those that were explored."""


class Overview(BaseModel):
    """The object of `stats --json`. Histograms by name: `reward_query`, `reward_evidence`, `reward_answer` (steps of
    the trees, or of the states), `margin`, `confidence` (kept pairs), `chosen`, `rejected` (lengths of their
    replies in `length_unit`), `cost` (dollars per question), `calls` (completions per question)."""

    kind: Literal["run", "data set"]
    path: str
    splits: list[str]
    recipes: list[str]
    rewards: list[str]
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
    warnings: list[str]


@without_cycle_collection()
def read_all(collection: Collection, *, watch: Callable[[float], None]) -> tuple[list[QuestionRow], OverviewCounts]:
    """Every question as a row of the list, and the counts of all. watch: is told the share that was read."""
    counts = OverviewCounts(collection)
    rows: dict[int, QuestionRow] = {}
    for explored in collection.scan():
        rows[explored.number] = counts.add(explored)
        watch(collection.scanned)
    return [capped_row(rows[number], collection.capped) for number in sorted(rows)], counts


class OverviewCounts:
    """Collects an overview question by question."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._run = RunCounts()
        self._where = CauseCounts()
        self._ends: dict[int, str] = {}
        self._causes: dict[int, str] = {}
        self._dropped: Counter[DropReason] = Counter()
        self._candidates = 0
        self._known: dict[str, set[str]] = {name: set() for name in ("splits", "recipes", "rewards", "teachers")}
        self._usage: Usage | None = Usage(cost_usd=0.0)
        self._values: dict[str, array[float]] = {}
        self._pairs: list[_KeptPair] = []
        self._ends_by_steps: dict[int, Counter[str]] = {}

    def add(self, explored: ExploredQuestion) -> QuestionRow:
        """Count a question; returns its row of the list."""
        row = question_row(explored)
        ends = row.ends
        self._ends[explored.number] = ends
        self._causes.pop(explored.number, None)  # it failed, and was explored later
        if ends == "failed" and explored.question.error:
            self._causes[explored.number] = explored.question.error.cause
        for question in explored.questions:
            self._add_question(question)
        for tree in explored.trees:
            self._run.add(tree.record)
            self._where.add(tree.record)
            for end in counted_ends(tree.record):
                self._ends_by_steps.setdefault(end.steps, Counter())[end.came_to] += 1
        self._add_steps(explored)
        self._candidates += len(explored.candidates)
        for each in explored.candidates:
            if each.dropped is None:
                self._pairs.append(_kept_pair(each, explored.number))
            else:
                self._dropped[each.dropped] += 1
        return row

    def _add_question(self, question: QuestionRecord) -> None:
        origin = question.origin
        named = {
            "splits": f"{origin.dataset}/{origin.split}",
            "recipes": origin.recipe,
            "rewards": origin.reward,
            "teachers": origin.teacher,
        }
        for name, value in named.items():
            if value:
                self._known[name].add(value)
        if question.usage is None:
            self._usage = None
            return
        self._usage = None if self._usage is None else self._usage + question.usage
        self._value("calls", question.usage.calls)
        if question.usage.cost_usd is not None:
            self._value("cost", question.usage.cost_usd)

    def _add_steps(self, explored: ExploredQuestion) -> None:
        """Count the rewards of all steps of the trees; without trees, those of the states that have pairs."""
        if explored.trees:
            steps = [(node.action_type, node.reward) for tree in explored.trees for node in tree.record.nodes[1:]]
        else:
            states = {id(each.state): each.state for each in explored.candidates}
            steps = [(step.action_type, step.reward) for state in states.values() for step in state.steps]
        for action_type, reward in steps:
            if action_type is not None and reward is not None:
                self._value(f"reward_{action_type}", reward)

    def _value(self, name: str, value: float) -> None:
        self._values.setdefault(name, array("d")).append(value)

    # -- the result --------------------------------------------------------------------------------------------

    def overview(self) -> Overview:
        """The overview of everything added so far; caps on the whole data set apply once all of it was scanned."""
        collection = self._collection
        kept = [pair for place, pair in enumerate(self._pairs) if place not in collection.capped]
        dropped = self._dropped + Counter(collection.capped.values())
        return Overview(
            kind=collection.kind,
            path=str(collection.path),
            splits=sorted(self._known["splits"]),
            recipes=sorted(self._known["recipes"]),
            rewards=sorted(self._known["rewards"]),
            teachers=sorted(self._known["teachers"] or collection.teachers),
            questions=len(self._ends),
            ends=dict(Counter(self._ends.values()).most_common()),
            failures_by_cause=dict(Counter(self._causes.values()).most_common()),
            questions_with_a_pair=len({pair.question for pair in kept}),
            candidates=self._candidates,
            pairs=len(kept),
            pairs_by_layer=_by_layer(kept),
            pairs_by_label=dict(Counter(pair.label for pair in kept)),
            pairs_by_tag=dict(Counter(tag for pair in kept for tag in pair.tags)),
            gold_agreement=gold_agreement(Counter((pair.type, pair.gold) for pair in kept)),
            mean_margin=_mean([pair.margin for pair in kept]),
            mean_confidence=_mean([pair.confidence for pair in kept]),
            dropped={reason: dropped[reason] for reason in DROP_REASONS if dropped[reason]},
            doubtful=sum(pair.doubtful for pair in kept),
            usage=self._usage if self._usage and self._usage.calls else None,
            histograms=_histograms(self._values, kept),
            length_unit=_unit(kept),
            trees=self._tree_facts() if collection.kind == "run" else None,
            rules=asdict(collection.rules),
            warnings=self._warnings(),
        )

    def _tree_facts(self) -> TreeFacts:
        run = self._run
        return TreeFacts(
            steps=run.nodes - run.done,
            continuations=run.continuations,
            mean_f1=mean(run.f1, run.with_gold),
            mean_em=mean(run.em, run.with_gold),
            mean_outcome=mean(run.outcome, run.continuations),
            diversity_by_layer=run.diversity.by_layer(),
            degenerate=run.signs.by_sign,
            parse_failures_by_cause=dict(run.parse_failures.most_common()),
            repair_turns=run.repair_turns,
            ends_by_steps={str(steps): dict(counts) for steps, counts in sorted(self._ends_by_steps.items())},
            causes=self._where.rows(),
        )

    def _warnings(self) -> list[str]:
        if (made := self._collection).kind == "data set":
            return made.warnings
        found = (
            self._run.warnings(split, max_tokens=made.max_tokens, cut_from=made.cut_from)
            for split in sorted(self._known["splits"])
        )
        return list(dict.fromkeys(chain.from_iterable(found)))


class _KeptPair(NamedTuple):
    """What is counted of a pair that passes the filters of single questions; lengths are of both replies."""

    question: int
    layer: int
    type: str
    label: str
    tags: tuple[str, ...]
    margin: float | None
    confidence: float | None
    tokens: tuple[int | None, int | None]
    words: tuple[int, int]
    doubtful: bool
    gold: GoldVerdict


def _kept_pair(each: Candidate, question: int) -> _KeptPair:
    both = each.chosen, each.rejected
    return _KeptPair(
        question,
        each.layer,
        each.chosen.action_type or "unreadable",
        each.pair.label or "none",
        tuple(each.tags),
        each.pair.margin,
        each.confidence,
        (both[0].tokens, both[1].tokens),
        (len(both[0].response.split()), len(both[1].response.split())),
        bool(cautions(each)),
        each.gold,
    )


def _unit(kept: Sequence[_KeptPair]) -> Literal["tokens", "words"]:
    """The unit of reply lengths: tokens if the data set has counted all of them."""
    return "words" if not kept or any(None in pair.tokens for pair in kept) else "tokens"


def _by_layer(kept: Iterable[_KeptPair]) -> dict[str, dict[str, int]]:
    found: dict[int, Counter[str]] = {}
    for pair in kept:
        found.setdefault(pair.layer, Counter())[pair.type] += 1
    return {str(layer): dict(counts) for layer, counts in sorted(found.items())}


def _histograms(values: dict[str, array[float]], kept: Sequence[_KeptPair]) -> dict[str, Histogram]:
    """The histograms for which there are values."""
    found = {name: histogram(np.array(values[name]), SHARES) for name in _REWARDS if name in values}
    for name in ("margin", "confidence"):
        known = np.array([value for pair in kept if (value := getattr(pair, name)) is not None])
        if len(known):
            edges = SHARES if name == "confidence" else _from(known)
            found[name] = histogram(known, edges)
    lengths = np.array([getattr(pair, _unit(kept)) for pair in kept])
    if len(lengths):
        edges = whole_edges(lengths)
        found |= {"chosen": histogram(lengths[:, 0], edges), "rejected": histogram(lengths[:, 1], edges)}
    if any(values.get("calls", ())):
        found["calls"] = histogram(np.array(values["calls"]), whole_edges(np.array(values["calls"])))
    if any(values.get("cost", ())):
        costs = np.array(values["cost"])
        found["cost"] = histogram(costs, list(np.linspace(0, float(costs.max()), BINS + 1)))
    return found


def _from(values: Any) -> list[float]:
    """Edges of margins: those of `SHARES`, extended on either side as far as the values go."""
    low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
    first, last = math.floor(low / WIDTH), math.ceil(high / WIDTH)
    return [round(each * WIDTH, 2) for each in range(first, last + 1)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return mean(sum(known), len(known))
