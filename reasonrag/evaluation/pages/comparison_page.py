"""`compare.md` and `compare.svg`: a comparison for people, made from its record alone.

Decides what is shown and plotted. Outside text is escaped for Markdown, and in the plot by the plotting library; none
of it is read as markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from reasonrag.evaluation.comparison_report import (
    ComparedExample,
    Comparison,
    ComparisonPart,
    ExampleAnswer,
    PairedComparison,
)
from reasonrag.evaluation.pages.report_page import METRIC_NAMES, metric_name, number, shortened
from reasonrag.evaluation.significance import MetricDelta
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import code, counted, drawing_style, escaped, percent
from reasonrag.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE: Final = "compare.md"
DRAWING: Final = "compare.svg"
_COLORS = ("#0b6e99", "#c4651b", "#5c7f2b", "#8a4fa0", "#b03a48", "#4d4d4d")
"""Of conditions, in their order: apart in lightness or hue for colour-blind readers."""
_INK, _LINE = "#222222", "#d5d5d5"
RULE = (
    "A higher EM counts as a gain only if cover-EM rises too: otherwise the model may just word its answers more like "
    "the gold ones."
)
_ALWAYS = ("em", "f1", "cover_em")
_DRAWN = ("accuracy", "em", "f1", "cover_em", "judged_right", "gold_recall", "no_answer")
_TYPES_DRAWN = 12
"""At most this many types are plotted, those with most questions; the table has all."""


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
    lines += ["", f"![Differences with intervals; wins and losses by type]({DRAWING})", ""]
    lines += ["## Conditions", ""]
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
    for title, examples in (("Wins", pair.wins), ("Losses", pair.losses)):
        if examples:
            lines += [f"### {title}: examples", ""]
            lines += [line for each in examples for line in _example(each, pair)]
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


def _example(example: ComparedExample, pair: PairedComparison) -> list[str]:
    golden = " or ".join(escaped(each) for each in example.golden_answers) or "(none)"
    style = " *(equal cover-EM: answer style)*" if example.style else ""
    return [
        f"- **{escaped(example.question)}** {code(example.question_id)}, gold answers: {golden}{style}",
        *_answer(pair.reference, example.reference),
        *_answer(pair.other, example.other),
        "",
    ]


def _answer(name: str, said: ExampleAnswer) -> list[str]:
    answer = "no answer" if said.answer is None else f"**{escaped(said.answer)}**"
    steps = [f"    - {escaped(each.action)}: {escaped(each.said)}" for each in said.steps]
    return [f"  - {escaped(name)}: {answer}", *steps]


# -- compare.svg -----------------------------------------------------------------------------------------------


def draw_comparison(comparison: Comparison) -> str:
    """Differences with their intervals, and wins and losses by type, as a standalone SVG."""
    pairs = comparison.pairs
    present = {name for pair in pairs for name, _ in shown_metrics(pair)}
    metrics = [each for each in _DRAWN if each in present]
    parts = _drawn_parts(comparison)
    rows = max(len(metrics), len(parts)) * max(1.0, 0.45 * len(pairs))

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _draw_metrics(left, pairs, metrics, confidence=comparison.confidence)
        _draw_outcomes(right, pairs, parts)
        whose = f"{label(pairs[0].other)} " if len(pairs) == 1 else ""
        reference = label(comparison.conditions[0].name)
        figure.suptitle(f"{whose}vs. {reference}, {counted(comparison.questions, 'question')}")
        if len(pairs) > 1:
            handles, labels = left.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=3)

    return _svg_of(draw, inches=(9.6, 1.9 + 0.42 * rows))


def _svg_of(draw: Callable[[Figure], None], *, inches: tuple[float, float]) -> str:
    """A standalone SVG. inches: width and height. draw: fills the figure."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    content = io.StringIO()
    style = drawing_style(ink=_INK, line=_LINE, size=10, grid="x", without=("top", "right", "left"))
    with mpl.rc_context(style), warnings.catch_warnings():
        # text is rendered by the viewer, so fonts missing here do not matter
        warnings.filterwarnings("ignore", r"Glyph .* missing")
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(content, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return re.sub(r"<metadata>.*?</metadata>", "", content.getvalue(), flags=re.DOTALL)


def label(text: str) -> str:
    """Outside text as it may stand in the drawing."""
    return on_one_line(shortened(text, 40))  # what fits beside a drawing


def _drawn_parts(comparison: Comparison) -> list[str | None]:
    """The types with most questions; [None] for all questions if there are no types."""
    found = comparison.pairs[0].by_type
    names: list[str | None] = [*sorted(found, key=lambda name: (-found[name].questions, name))[:_TYPES_DRAWN]]
    return names or [None]


def _places(rows: int, pairs: int, position: int) -> list[float]:
    """Vertical positions of one pair's marks: rows from the top, pairs side by side in each."""
    return [-row - (position - (pairs - 1) / 2) * 0.7 / pairs for row in range(rows)]


def _draw_metrics(axes: Axes, pairs: Sequence[PairedComparison], metrics: Sequence[str], *, confidence: float) -> None:
    for position, pair in enumerate(pairs):
        color = _COLORS[position % len(_COLORS)]
        name = label(pair.other)
        for y, metric in zip(_places(len(metrics), len(pairs), position), metrics, strict=True):
            delta = pair.metrics.get(metric)
            if delta is None or delta.value is None or delta.low is None or delta.high is None:
                continue
            axes.plot([100 * delta.low, 100 * delta.high], [y, y], color=color, linewidth=2.2)
            axes.plot(100 * delta.value, y, "o", color=color, markersize=5.5, label=name)
            name = ""
    axes.axvline(0, color=_INK, linewidth=0.9)
    axes.set_yticks([-row for row in range(len(metrics))], [metric_name(each) for each in metrics])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-len(metrics) + 0.4, 0.6)
    axes.set_xlabel(f"difference in points, with {percent(confidence)} CI")


def _draw_outcomes(axes: Axes, pairs: Sequence[PairedComparison], parts: Sequence[str | None]) -> None:
    """Losses to the left of 0, wins to the right; differences of style only are hatched."""
    from matplotlib.ticker import MaxNLocator

    height = 0.7 / len(pairs)
    for position, pair in enumerate(pairs):
        color = _COLORS[position % len(_COLORS)]
        for y, name in zip(_places(len(parts), len(pairs), position), parts, strict=True):
            part = pair.by_type.get(name) if name is not None else None
            if name is not None and part is None:
                continue
            outcomes = pair.outcomes if part is None else part.outcomes
            wins, losses = outcomes.wins - outcomes.style_wins, outcomes.losses - outcomes.style_losses
            axes.barh(y, wins, height, color=color)
            axes.barh(y, outcomes.style_wins, height, left=wins, color="none", edgecolor=color, hatch="////")
            axes.barh(y, -losses, height, color=color, alpha=0.55)
            axes.barh(y, -outcomes.style_losses, height, left=-losses, color="none", edgecolor=color, hatch="////")
    axes.axvline(0, color=_INK, linewidth=0.9)
    widest = max(map(abs, axes.dataLim.intervalx))
    axes.set_xlim(-1.06 * max(widest, 1), 1.06 * max(widest, 1))
    names = ["all questions" if name is None else label(name) for name in parts]
    axes.set_yticks([-row for row in range(len(parts))], names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-len(parts) + 0.4, 0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlabel("losses | wins in EM (hatched: equal cover-EM)")
