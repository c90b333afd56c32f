"""Terminal output of an evaluation and of `ask`. Text of models and passages is never read as markup."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from preference.records import ParseFailure
from reasonrag.agent.agent import AgentStep
from reasonrag.evaluation.ask import AgentAnswer
from reasonrag.evaluation.pages.report_page import (
    METRIC_NAMES,
    PAGE,
    budget_sentence,
    choice_text,
    cost_rows,
    interval,
    metric_name,
    number,
    training_sentence,
)
from reasonrag.evaluation.predictions import PREDICTIONS, PredictedStep
from reasonrag.evaluation.report import REPORT, Report
from reasonrag.exploration.summary import AGAINST
from reasonrag.files import FAILURES
from reasonrag.rendering import counted, of_which_reasoning, percent
from reasonrag.terminal import (
    counts_text,
    dollars,
    on_one_line,
    print_next,
    print_prose,
    print_shown,
    print_table,
    print_titled,
)


def show_evaluation(report: Report) -> None:
    """Means with intervals, the cost, the paths of the files and the next command; types and hops are in the page."""
    title = f"{report.dataset}/{report.split}  method {report.method}  model {report.model}"
    table = Table()
    for heading in ("metric", "mean", f"{percent(report.confidence)} CI", "questions"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name in METRIC_NAMES:
        if metric := report.metrics.get(name):
            table.add_row(metric_name(name), number(name, metric.value), interval(name, metric), f"{metric.n:,}")
    print_titled(on_one_line(title), table)
    print_table(
        "cost",
        [
            ("questions", f"{report.answered:,} attempted, {report.failed:,} failed{_causes(report)}"),
            ("budget", budget_sentence(report)),
            *(_replies(report)),
            *cost_rows(report),
            ("training", training_sentence(report)),
        ],
    )
    run = Path(report.run)
    for file in (PREDICTIONS, REPORT, PAGE):
        print_shown(f"wrote {run / file}")
    if report.owed:
        print_prose(f"failure causes: {run / FAILURES}; the same command retries the failed questions")
    print_next("compare", run, "OTHER_RUN")


def _causes(report: Report) -> str:
    return f" ({counts_text(report.failures_by_cause)})" if report.failures_by_cause else ""


def _replies(report: Report) -> list[tuple[str, str]]:
    """Why replies could not be parsed; no row if all could."""
    found = report.parse_failures_by_cause
    return [("unreadable replies", counts_text(found))] if found else []


# -- one question ------------------------------------------------------------------------------------------------------


def show_step(step: AgentStep, recorded: PredictedStep) -> None:
    """A step as it is taken: the passages before it, then the whole reply."""
    console = Console(highlight=False)
    for place, each in enumerate(recorded.passages, start=1):
        console.print(
            Text(f"  {place}. {on_one_line(each.title)} [{on_one_line(each.id)}]", style="dim"), soft_wrap=True
        )
    what = f"{recorded.action} (unreadable: {_why(step.parse_error)})" if step.parse_error else recorded.action
    repaired = " (repaired)" if step.repaired else ""
    chosen = choice_text(recorded.drafts, recorded.score)
    console.print(Text.assemble((f"{what}{repaired}{chosen}: ", "bold"), on_one_line(step.response)), soft_wrap=True)


def _why(error: ParseFailure) -> str:
    return on_one_line(f"{error.cause}, {error.detail}")


def show_answer(found: AgentAnswer) -> None:
    """Evidence, sources, answer and cost."""
    console = Console(highlight=False)
    print_shown()
    for each in found.evidence:
        console.print(Text(f"evidence: {on_one_line(each)}"), soft_wrap=True)
    for source in found.sources:
        console.print(Text(f"source: {on_one_line(source.title)} [{on_one_line(source.id)}]"), soft_wrap=True)
    grounded = {True: "", False: " (not found in the passages read)", None: ""}[found.grounded]
    last = found.steps[-1].parse_error if found.steps else None
    helps = f"; {AGAINST[last]}" if last in AGAINST else ""
    answer = f"none: the last reply was unreadable{helps}"
    if found.answer is not None:
        answer = on_one_line(found.answer) + grounded
    console.print(Text(f"answer: {answer}", style="bold"), soft_wrap=True)
    cost = "cost unknown" if found.cost_usd is None else dollars(found.cost_usd)
    reasoning = of_which_reasoning(found.reasoning_tokens)
    tokens = f"{found.prompt_tokens:,} tokens in, {found.completion_tokens:,} out{reasoning}"
    searches = f"{found.searches:,} {'search' if found.searches == 1 else 'searches'}"
    print_shown(f"{searches}, {counted(found.calls, 'completion')}, {tokens}, {cost}")
    if found.critic:
        read = f"{found.critic_prompt_tokens:,} tokens in"
        print_shown(f"{on_one_line(found.critic)} scored {counted(found.scores, 'step')}, {read}")
