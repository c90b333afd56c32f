"""What a comparison shows, in the terminal and in full in `compare.md`; made from its record alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from reasonrag.evaluation.comparison_report import COMPARISON, Comparison, ComparisonPart, PairedComparison
from reasonrag.evaluation.pages.report_page import METRIC_NAMES, metric_name, number
from reasonrag.evaluation.significance import MetricDelta
from reasonrag.rendering import Line, Part, Table, counted, markdown_page, percent, warned

PAGE: Final = "compare.md"
RULE = (
    "A higher EM counts as a gain only if cover-EM rises too: otherwise the model may just word its answers more like "
    "the gold ones."
)
_ALWAYS = ("em", "f1", "cover_em")


def difference_text(metric: str, delta: MetricDelta) -> str:
    """A difference with its interval; of shares, in percentage points."""
    if delta.value is None or delta.low is None or delta.high is None:
        return "-"
    value = number(metric, delta.value)
    sign = "" if value.startswith("-") else "+"
    return f"{sign}{value} ({number(metric, delta.low)} to {number(metric, delta.high)})"


def comparison_parts(comparison: Comparison, out: Path) -> Iterator[Part]:
    """A table per pair, the verdict, the settings that differ, and the files. Types, hops and t-tests are in the
    page."""
    for pair in comparison.pairs:
        yield from _pair(pair, comparison)
        yield from _changed(pair)
    yield RULE
    yield Line(f"wrote {out / PAGE} and {COMPARISON}")


def render_comparison(comparison: Comparison) -> str:
    """The whole page."""
    reference, *others = (each.name for each in comparison.conditions)
    return markdown_page(f"{', '.join(others)} vs. {reference}", _page(comparison))


def _page(comparison: Comparison) -> Iterator[Part]:
    seeds = any(len(each.runs) > 1 for each in comparison.conditions)
    yield (
        f"{counted(comparison.questions, 'question')} of {comparison.dataset}/{comparison.split}; "
        f"{percent(comparison.confidence)} confidence intervals (CI) from a paired bootstrap over questions"
        f"{' and seeds, too narrow with few seeds' if seeds else ''} "
        f"({comparison.bootstrap:,} resamples, seed {comparison.seed})"
        f"{', not corrected for multiple comparisons' if len(comparison.pairs) > 1 else ''}. {RULE}"
    )
    yield from (each.sentence for each in comparison.pairs)
    yield from warned(comparison.warnings)
    metrics = _present(comparison)
    yield Table(
        "Conditions",
        [
            (
                each.name,
                each.method,
                each.model,
                len(each.runs),
                *(number(one, each.metrics.get(one)) for one in metrics),
            )
            for each in comparison.conditions
        ],
        ("condition", "method", "model", "runs", *map(metric_name, metrics)),
    )
    for pair in comparison.pairs:
        yield from _pair(pair, comparison)
        if pair.t_tests:
            yield t_test_sentence(pair)
        level = percent(comparison.confidence)
        scores = [f"{name} difference in points ({level} CI)" for name in ("EM", "F1", "cover-EM")]
        for title, parts in (("type", pair.by_type), ("hops", pair.by_hops)):
            if parts:
                head = (title, "questions", *scores, "wins", "losses", "ties")
                yield Table(f"{pair.other} by {title}", _rows(parts), head)
        yield from _changed(pair)


def _present(comparison: Comparison) -> list[str]:
    """Metrics with a nonzero value in some condition, and always the answer metrics."""
    conditions = comparison.conditions
    return [each for each in conditions[0].metrics if each in _ALWAYS or any(one.metrics[each] for one in conditions)]


def _pair(pair: PairedComparison, comparison: Comparison) -> Iterator[Part]:
    yield Table(
        f"{pair.other} vs. {pair.reference}, {counted(comparison.questions, 'question')}",
        [
            (
                metric_name(name),
                each.n,
                *(number(name, one) for one in (each.reference, each.other)),
                difference_text(name, each),
            )
            for name, each in _shown_metrics(pair)
        ],
        ("metric", "questions", pair.reference, pair.other, f"difference ({percent(comparison.confidence)} CI)"),
    )
    yield outcome_sentence(pair)
    yield pair.sentence


def _changed(pair: PairedComparison) -> Iterator[Table]:
    if pair.changed:
        yield Table("settings that differ", map(arrow, pair.changed))


def _shown_metrics(pair: PairedComparison) -> list[tuple[str, MetricDelta]]:
    """Metrics by name, without those that are 0 in both conditions; those of the answer are always there."""
    always = ("accuracy", *_ALWAYS)
    return [(name, each) for name, each in pair.metrics.items() if each.reference or each.other or name in always]


def arrow(changed: str) -> tuple[str, str]:
    """`method was 'rag', is 'agent'` as `method` and `rag -> agent`."""
    name, was, values = changed.partition(" was ")
    before, now, after = (each.strip("'") if each != "None" else "none" for each in values.partition(", is "))
    return (name.replace("_", " "), f"{before} -> {after}") if was and now else ("setting", changed)


def outcome_sentence(pair: PairedComparison) -> str:
    """Wins, losses and ties with the test, in a sentence."""
    outcomes, test = pair.outcomes, pair.tests.get("em")
    text = f"EM: {outcomes.wins:,} wins, {outcomes.losses:,} losses, {outcomes.ties:,} ties"
    if outcomes.style_wins or outcomes.style_losses:
        text += f" ({outcomes.style_wins:,} wins and {outcomes.style_losses:,} losses have equal cover-EM)"
    of_choices = f" Accuracy: {pair.tests['accuracy']}." if "accuracy" in pair.tests else ""
    return f"{text}; {test}.{of_choices}" if test else f"{text}."


def t_test_sentence(pair: PairedComparison) -> str:
    """The t-tests, and that the verdict does not use them."""
    tests = "; ".join(f"{METRIC_NAMES[name]} {each}" for name, each in pair.t_tests.items())
    return f"Two-sided paired t-test over questions, as papers report it; the verdict does not use it: {tests}."


def _rows(parts: dict[str, ComparisonPart]) -> Iterable[Sequence[object]]:
    for name, part in parts.items():
        outcomes = part.outcomes
        shown = [difference_text(metric, part.metrics[metric]) for metric in ("em", "f1", "cover_em")]
        yield name, part.questions, *shown, outcomes.wins, outcomes.losses, outcomes.ties
