"""What an evaluation shows, in the terminal and in `report.md`.

Decides what is shown and how numbers are formatted; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from preference.export.private_files import write_file
from reasonrag.agent.protocols.known import most_searches
from reasonrag.evaluation.report import REPORT, MetricMean, QuestionGroup, Report
from reasonrag.evaluation.reported_metrics import METRICS
from reasonrag.files import FAILURES, PREDICTIONS
from reasonrag.rendering import (
    Line,
    Part,
    Table,
    counted,
    counts_text,
    dollars_or_unknown,
    markdown_page,
    next_command,
    percent,
    shows,
    tokens_text,
    warned,
)

PAGE = "report.md"


def write_page(folder: Path, report: Report) -> None:
    """Write `report.md` atomically."""
    page = markdown_page(f"{report.model} on {report.dataset}/{report.split}", _page(report))
    write_file(folder / PAGE, page.encode())


@shows(Report)
def evaluation_parts(report: Report) -> Iterator[Part]:
    """Means with intervals, the cost, the files and the next command; types and hops are in the page."""
    yield from _tables(report)
    run = Path(report.run)
    yield from (Line(f"wrote {run / file}") for file in (PREDICTIONS, REPORT, PAGE))
    if report.owed:
        yield Line(f"failure causes: {run / FAILURES}; the same command retries the failed questions")
    yield next_command("compare", run, "OTHER_RUN")


def _tables(report: Report) -> Iterator[Table]:
    known = ((name, report.metrics[name]) for name in METRICS if name in report.metrics)
    named = f"  agent {report.asked.agent}" if report.asked.agent else ""
    yield Table(
        f"{report.dataset}/{report.split}  method {report.method}{named}  model {report.model}",
        [(metric_name(name), number(name, each.value), interval(name, each), each.n) for name, each in known],
        ("metric", "mean", f"{percent(report.confidence)} CI", "questions"),
    )
    failed = f" ({counts_text(report.failures_by_cause)})" if report.failures_by_cause else ""
    yield Table(
        "cost",
        [
            ("questions", f"{report.answered:,} attempted, {report.failed:,} failed{failed}"),
            *_budget(report),
            ("unreadable replies", report.parse_failures_by_cause),
            *_costs(report),
            ("training", training_sentence(report)),
        ],
    )


def _budget(report: Report) -> Iterator[tuple[str, object]]:
    """Of an attempt, whatever the method."""
    searches = most_searches(report.asked.max_steps, report.asked.agent)
    completions = counted(report.asked.max_steps * (report.best_of or 1), "completion")
    readings = ", readings apart" if report.asked.reader else ""
    yield "at most", f"{completions} and {counted(searches, 'search')} an attempt{readings}"
    yield "best of", "" if report.best_of is None else report.best_of
    yield "attempts that vote", "" if report.vote is None else report.vote
    yield "repair turn for an unreadable reply", report.repair


def _page(report: Report) -> Iterator[Part]:
    yield (
        "A question without an answer scores 0; one that failed at the model or retriever is excluded from all means."
    )
    yield from warned(report.warnings)
    yield from _tables(report)
    for title, groups in (("type", report.by_type), ("hops", report.by_hops)):
        if len(groups) > 1:
            yield _by_group(title, groups, percent(report.confidence))
    yield Table("Conditions of training", [(each.name, each.outcome) for each in report.checks])
    renderer = f", renderer {report.asked.renderer}" if report.asked.renderer else ""
    yield (
        f"Confidence intervals (CI): percentile bootstrap over questions, {report.bootstrap:,} resamples, seed "
        f"{report.bootstrap_seed}. Configuration {report.config_hash}{renderer}. Every reply is in {PREDICTIONS}, and "
        f"settings and versions are in {REPORT}."
    )


def metric_name(name: str) -> str:
    """The name with its unit: `EM (%)`, `searches`."""
    metric = METRICS[name]
    return metric.name if metric.counts else f"{metric.name} (%)"


def number(name: str, value: float | None) -> str:
    """A metric, or a difference of two: shares and scores in percent, counts per question as they are."""
    if value is None:
        return "-"
    counts = METRICS[name].counts
    digits = 2 if counts and not name.endswith("tokens") else 1
    shown = round(value if counts else 100 * value, digits) + 0.0  # no -0.0
    return f"{shown:,.{digits}f}"


def interval(name: str, metric: MetricMean) -> str:
    return "-" if metric.low is None else f"{number(name, metric.low)} to {number(name, metric.high)}"


def _by_group(title: str, groups: Mapping[str, QuestionGroup], level: str) -> Table:
    """The questions by type or hops. level: of the intervals."""
    found = {name for each in groups.values() for name in each.metrics}
    shown = [name for name, metric in METRICS.items() if metric.of_groups and name in found]
    rows = [
        (name, each.questions, *(_cell(metric, each.metrics.get(metric)) for metric in shown))
        for name, each in groups.items()
    ]
    return Table(f"By {title}, with {level} CI", rows, (title, "questions", *map(metric_name, shown)))


def _cell(name: str, metric: MetricMean | None) -> str:
    return "-" if metric is None else f"{number(name, metric.value)} ({interval(name, metric)})"


def _costs(report: Report) -> Iterator[tuple[str, object]]:
    usage = report.usage
    yield "completions", usage.calls
    yield "tokens", tokens_text(usage)
    if report.judge:
        tokens = f"{usage.judge_prompt_tokens:,} tokens in, {usage.judge_completion_tokens:,} out"
        unjudged = report.unjudged_by_cause
        without = f"; missing: {counts_text(unjudged)}" if unjudged else ""
        without += "; shown no gold answers, as not every question has them" if report.judge_saw_gold is False else ""
        yield f"judged by {report.judge}", f"{usage.judge_calls:,} completions, {tokens}{without}"
    if report.critic:
        scored = f"{counted(usage.critic_calls, 'step')}, {usage.critic_prompt_tokens:,} tokens in"
        yield f"scored by {report.critic}", scored
    yield "cost", dollars_or_unknown(report.cost_usd)


def training_sentence(report: Report) -> str:
    known = report.provenance
    if known is None:
        return "No training provenance found for this model."
    how = " ".join(filter(None, [known.stage, known.finetuning_type]))
    began = f" of {known.base_model}" if known.base_model else ""
    data = f" on {', '.join(known.data)}" if known.data else ""
    return f"{how or 'trained'}{began}{data}, {counted(known.questions, 'question')}, as {known.source} records."
