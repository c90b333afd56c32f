"""`compare.md`: a comparison for people, made from its record alone.

Decides what is shown. Outside text is escaped for Markdown; none of it is read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reasonrag.evaluation.comparison_report import (
    Comparison,
    ComparisonPart,
    PairedComparison,
)
from reasonrag.evaluation.pages.report_page import METRIC_NAMES, metric_name, number
from reasonrag.evaluation.significance import MetricDelta
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import code, counted, escaped, percent

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


# -- compare.md ------------------------------------------------------------------------------------------------


def render_comparison(comparison: Comparison) -> str:
    """The whole file."""
    names = [each.name for each in comparison.conditions]
    seeds = any(len(each.runs) > 1 for each in comparison.conditions)
    lines = [f"# {', '.join(escaped(each) for each in names[1:])} vs. {escaped(names[0])}", ""]
    about = (
        f"{counted(comparison.questions, 'question')} of {code(f'{comparison.dataset}/{comparison.split}')}; "
        f"{percent(comparison.confidence)} confidence intervals (CI) from a paired bootstrap over questions"
        f"{' and seeds, too narrow with few seeds' if seeds else ''} "
        f"({comparison.bootstrap:,} resamples, seed {comparison.seed})"
        f"{', not corrected for multiple comparisons' if len(comparison.pairs) > 1 else ''}. {RULE}"
    )
    lines += [about, ""]
    lines += [f"- {escaped(each.sentence)}" for each in comparison.pairs]
    lines += ["", *(f"- **Warning:** {escaped(each)}" for each in comparison.warnings)]
    lines += ["", "## Conditions", ""]
    lines += _markdown_table(
        ("condition", "method", "model", "runs", *(metric_name(each) for each in _present(comparison))),
        [
            (
                escaped(each.name),
                escaped(each.method),
                code(each.model),
                f"{len(each.runs)}",
                *(number(metric, each.metrics.get(metric)) for metric in _present(comparison)),
            )
            for each in comparison.conditions
        ],
    )
    for pair in comparison.pairs:
        lines += _pair(pair, f"({percent(comparison.confidence)} CI)")
    return mask_secrets("\n".join(lines).rstrip() + "\n", secrets())


def _present(comparison: Comparison) -> list[str]:
    """Metrics with a nonzero value in some condition, and always the answer metrics."""
    conditions = comparison.conditions
    return [each for each in conditions[0].metrics if each in _ALWAYS or any(one.metrics[each] for one in conditions)]


def _pair(pair: PairedComparison, level: str) -> list[str]:
    lines = ["", f"## {escaped(pair.other)} vs. {escaped(pair.reference)}", "", escaped(pair.sentence), ""]
    lines += _markdown_table(
        ("metric", "questions", escaped(pair.reference), escaped(pair.other), f"difference {level}"),
        [
            (
                metric_name(name),
                f"{each.n:,}",
                number(name, each.reference),
                number(name, each.other),
                difference_text(name, each),
            )
            for name, each in shown_metrics(pair)
        ],
    )
    lines += ["", outcome_sentence(pair), "", *([t_test_sentence(pair), ""] if pair.t_tests else ())]
    for title, parts in (("type", pair.by_type), ("hops", pair.by_hops)):
        if parts:
            scores = [f"{name} difference in points {level}" for name in ("EM", "F1", "cover-EM")]
            lines += [*_markdown_table((title, "questions", *scores, "wins", "losses", "ties"), _rows(parts)), ""]
    if pair.changed:
        lines += ["Settings that differ:", "", *(f"- {code(arrow(each))}" for each in pair.changed), ""]
    return lines


def shown_metrics(pair: PairedComparison) -> list[tuple[str, MetricDelta]]:
    """Metrics by name, without those that are 0 in both conditions; those of the answer are always there."""
    always = ("accuracy", *_ALWAYS)
    return [(name, each) for name, each in pair.metrics.items() if each.reference or each.other or name in always]


def arrow(changed: str) -> str:
    """`method was 'rag', is 'agent'` as `method: rag -> agent`."""
    name, was, values = changed.partition(" was ")
    before, now, after = (each.strip("'") if each != "None" else "none" for each in values.partition(", is "))
    return f"{name.replace('_', ' ')}: {before} -> {after}" if was and now else changed


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


def _rows(parts: dict[str, ComparisonPart]) -> Iterable[Sequence[str]]:
    for name, part in parts.items():
        outcomes = part.outcomes
        shown = [difference_text(metric, part.metrics[metric]) for metric in ("em", "f1", "cover_em")]
        counts = [f"{each:,}" for each in (outcomes.wins, outcomes.losses, outcomes.ties)]
        yield escaped(name), f"{part.questions:,}", *shown, *counts


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; cells are Markdown."""
    return [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]
