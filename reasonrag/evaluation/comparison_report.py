"""The record of `compare.json`: how conditions differ on their common questions, and the verdict; and what it shows.

Decides the file's fields and the verdicts: a gain counts only if cover-EM gains too, because exact match alone also
rises when a model merely words its answers like the golden ones. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from pydantic import Field

from preference.records import AbsentIfNone, Record
from reasonrag.evaluation.judges.pairwise import Preferences
from reasonrag.evaluation.report_page import metric_name, number
from reasonrag.evaluation.reported_metrics import METRICS, capitalized
from reasonrag.evaluation.significance import Equivalence, MetricDelta, mcnemar_text
from reasonrag.rendering import Part, Shown, Table, counted, markdown_page, percent, warned, written

PAGE: Final = "compare.md"
OF_PARTS: Final = ("em", "f1", "cover_em")
"""Metrics of the answer: always shown, and by question type and hops, too."""

RULE = (
    "A higher EM counts as a gain only if cover-EM rises too: otherwise the model may just word its answers more like "
    "the gold ones."
)

ComparisonVerdict = Literal["identical", "gain", "style_gain", "loss", "style_loss", "no_difference"]
"""gain, loss: EM differs significantly, and cover-EM in the same direction; or the metric that decides in its place
does. style_gain, style_loss: EM does and cover-EM does not, which may be the wording of answers. no_difference: the
metric that decides does not. identical: no metric differs on any question.

Significantly: the interval excludes 0, and the test agrees (p at most 1 - confidence). A few questions that all went
one way have an interval without 0, because no resample contains a loss; the test accounts for how few they are."""


class WinLossCounts(Record):
    """Counts of questions with a higher, lower or equal EM in the other condition (mean over several seeds), or of the
    metric that decides in its place.

    style_wins, style_losses: those with equal cover-EM; 0 where another metric decides.
    """

    wins: int
    losses: int
    ties: int
    style_wins: int
    style_losses: int


class ComparisonPart(Record):
    """The questions of one type or number of hops. metrics: `OF_PARTS`."""

    questions: int
    metrics: dict[str, MetricDelta]
    outcomes: WinLossCounts


class ConditionSummary(Record):
    """A condition. runs: as given, by seed. metrics: means over questions and seeds; null without values."""

    name: str
    runs: list[str]
    method: str
    model: str
    seeds: list[int]
    metrics: dict[str, float | None]


class PairedComparison(Record):
    """One condition against the reference."""

    reference: str
    other: str
    verdict: ComparisonVerdict
    sentence: str
    metrics: dict[str, MetricDelta]
    decided_by: str = "em"
    """The metric of verdict and counts: EM if every question has gold answers and some answer equals one; else
    preference or judged_right, where there is one."""
    preferences: AbsentIfNone[Preferences] = None
    """With --judge."""
    paired_seeds: bool = False
    """Both have the same seeds, several; a resample draws the same ones for both."""
    detectable: float | None = None
    """The smallest difference that decides and is found with 80 % power, in points; null where none can be."""
    equivalent: AbsentIfNone[Equivalence] = None
    """With --equivalent."""
    tests: dict[str, float]
    """p of McNemar's test of the metrics that decide, and of accuracy where questions have options."""
    outcomes: WinLossCounts
    by_type: dict[str, ComparisonPart] = Field(default_factory=dict)
    by_hops: dict[str, ComparisonPart] = Field(default_factory=dict)
    changed: list[str] = Field(default_factory=list)
    """Differing settings that affect answers: `key was x, is y`."""
    wins: list[str] = Field(default_factory=list)
    """Ids of the questions; what was said is in `predictions.jsonl`."""
    losses: list[str] = Field(default_factory=list)


class Comparison(Record, Shown):
    """Content of `compare.json`."""

    schema_version: Literal["reasonrag.comparison/1"] = "reasonrag.comparison/1"
    dataset: str
    split: str
    questions: int
    """Compared questions, to which every evaluation has replies."""
    left_out: dict[str, int]
    """missing: absent from an evaluation; failed: without replies in one."""
    confidence: float
    bootstrap: int
    seed: int
    conditions: list[ConditionSummary]
    """The first is the reference."""
    pairs: list[PairedComparison]
    cost_usd: AbsentIfNone[float] = None
    """Of the judgements, over all sessions."""
    warnings: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)

    def shown(self) -> Iterator[Part]:
        """A table per pair, the verdict, and the settings that differ. Types and hops are in the page."""
        yield from warned(self.warnings)
        for pair in self.pairs:
            yield from _pair(pair, self)
        if any(pair.decided_by == "em" for pair in self.pairs):
            yield RULE


def render_comparison(comparison: Comparison) -> str:
    """The whole page."""
    reference, *others = (each.name for each in comparison.conditions)
    return markdown_page(f"{', '.join(others)} vs. {reference}", _page(comparison))


def _page(comparison: Comparison) -> Iterator[Part]:
    seeds = " and seeds, too narrow with few seeds" if any(len(each.runs) > 1 for each in comparison.conditions) else ""
    level = percent(comparison.confidence)
    yield (
        f"{counted(comparison.questions, 'question')} of {comparison.dataset}/{comparison.split}; {level} confidence "
        f"intervals (CI) from a paired bootstrap over questions{seeds} "
        f"({comparison.bootstrap:,} resamples, seed {comparison.seed})"
        f"{', not corrected for multiple comparisons' if len(comparison.pairs) > 1 else ''}. {RULE}"
    )
    yield from warned(comparison.warnings)
    judged = any(each.metrics["judged_right"] is not None for each in comparison.conditions)
    shown = (*OF_PARTS, *(["judged_right", "judge_agrees"] if judged else []))
    yield Table(
        "Conditions",
        [
            (each.name, each.method, each.model, len(each.runs), *(number(one, each.metrics[one]) for one in shown))
            for each in comparison.conditions
        ],
        ("condition", "method", "model", "runs", *map(metric_name, shown)),
    )
    for pair in comparison.pairs:
        yield from _pair(pair, comparison)
        for title, parts in (("type", pair.by_type), ("hops", pair.by_hops)):
            if parts:
                names = dict.fromkeys((*OF_PARTS, pair.decided_by))
                scores = [f"{METRICS[name].name} difference in points ({level} CI)" for name in names]
                rows = [_row(name, part, names) for name, part in parts.items()]
                yield Table(f"{pair.other} by {title}", rows, (title, "questions", *scores, "wins", "losses", "ties"))


def _pair(pair: PairedComparison, comparison: Comparison) -> Iterator[Part]:
    yield pair.sentence
    yield Table(
        f"{pair.other} vs. {pair.reference}, {counted(comparison.questions, 'question')}",
        [
            (
                metric_name(name),
                each.n,
                *(number(name, one) for one in (each.reference, each.other)),
                difference_text(name, each),
            )
            for name, each in pair.metrics.items()
            if each.n and (each.reference or each.other or name in ("accuracy", "judged_right", *OF_PARTS))
        ],
        ("metric", "questions", pair.reference, pair.other, f"difference ({percent(comparison.confidence)} CI)"),
    )
    if judged := pair.preferences:
        yield _judged(judged, pair)
    outcomes, style = pair.outcomes, "EM does not decide: a question has no gold answers, or no answer equals one"
    if pair.decided_by == "em":
        style = f"{outcomes.style_wins:,} wins and {outcomes.style_losses:,} losses have equal cover-EM"
    of_choices = f" Accuracy: {mcnemar_text(pair.tests['accuracy'])}." if "accuracy" in pair.tests else ""
    name = METRICS[pair.decided_by].name
    yield (
        f"{capitalized(name)}: {outcomes.wins:,} wins, {outcomes.losses:,} losses, {outcomes.ties:,} ties; "
        f"{style}.{of_choices}"
    )
    if pair.changed:
        yield f"Settings that differ: {'; '.join(pair.changed)}."


def _judged(found: Preferences, pair: PairedComparison) -> str:
    failed = f", of which {found.failed:,} failed (the same command asks for them again)" if found.failed else ""
    return (
        f"{found.judge} prefers {pair.other} {found.preferred:,} times and {pair.reference} "
        f"{found.reference_preferred:,} times; {counted(found.ties, 'tie')}, {found.turned:,} of them because it chose "
        f"another answer in each order; {found.unjudged:,} without a judgement{failed}. {found.by_rule:,} of all were "
        "decided without asking: equal answers, and an answer against none. Where by gold answers one is right and the "
        f"other wrong, the judge prefers the right one: {written(found.agrees_with_gold)}."
    )


def _row(name: str, part: ComparisonPart, metrics: Iterable[str]) -> Sequence[object]:
    outcomes = part.outcomes
    shown = [difference_text(metric, part.metrics.get(metric, MetricDelta(n=0))) for metric in metrics]
    return name, part.questions, *shown, outcomes.wins, outcomes.losses, outcomes.ties


def difference_text(metric: str, delta: MetricDelta) -> str:
    """A difference with its interval; of shares, in percentage points."""
    if delta.value is None or delta.low is None or delta.high is None:
        return "-"
    value = number(metric, delta.value)
    sign = "" if value.startswith("-") else "+"
    return f"{sign}{value} ({number(metric, delta.low)} to {number(metric, delta.high)})"
