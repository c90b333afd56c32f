"""What a comparison shows, in the terminal and in full in `compare.md`; made from its record alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from reasonrag.evaluation.comparison_report import OF_PARTS, Comparison, ComparisonPart, PairedComparison
from reasonrag.evaluation.judges.pairwise import Preferences
from reasonrag.evaluation.pages.report_page import metric_name, number
from reasonrag.evaluation.reported_metrics import METRICS, capitalized
from reasonrag.evaluation.significance import MetricDelta, mcnemar_text
from reasonrag.rendering import Part, Table, counted, markdown_page, percent, shows, warned, written

PAGE: Final = "compare.md"
RULE = (
    "A higher EM counts as a gain only if cover-EM rises too: otherwise the model may just word its answers more like "
    "the gold ones."
)


def difference_text(metric: str, delta: MetricDelta) -> str:
    """A difference with its interval; of shares, in percentage points."""
    if delta.value is None or delta.low is None or delta.high is None:
        return "-"
    value = number(metric, delta.value)
    sign = "" if value.startswith("-") else "+"
    return f"{sign}{value} ({number(metric, delta.low)} to {number(metric, delta.high)})"


@shows(Comparison)
def comparison_parts(comparison: Comparison) -> Iterator[Part]:
    """A table per pair, the verdict, and the settings that differ. Types and hops are in the page."""
    yield from warned(comparison.warnings)
    for pair in comparison.pairs:
        yield from _pair(pair, comparison)
    if any(pair.decided_by == "em" for pair in comparison.pairs):
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
