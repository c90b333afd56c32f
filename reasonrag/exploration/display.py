"""Terminal output of runs and estimates: tables on stdout. Model and passage text is never treated as markup."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from preference.records import OF_THE_STATE
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.exploration.cost_estimate import CostEstimate
from reasonrag.exploration.summary import AGAINST, RunSummary
from reasonrag.files import FAILURES, ROLLOUTS
from reasonrag.llm.endpoint.prompt_window import CUT_FROM, recorded_cut
from reasonrag.llm.expected_usage import Range
from reasonrag.ranks import RANKS, whole_of
from reasonrag.rendering import counted, of_which_reasoning
from reasonrag.terminal import (
    counts_text,
    depths_text,
    dollars_or_unknown,
    print_next,
    print_prose,
    print_shown,
    print_table,
    share_text,
    warn,
)


def show_run(summary: RunSummary, *, warned: Collection[str] = ()) -> None:
    """Show the summary of `generate`, where the files are, and the next command. warned: shown during the run."""
    run, attempts = Path(summary.run), counted(summary.session_failed_calls, "failed attempt")
    reasoning = of_which_reasoning(summary.reasoning_tokens)
    cached = f", {summary.session_cached_calls:,} of them from the journal" if summary.session_cached_calls else ""
    finished = " of finished trees" if summary.stopped else ""
    rows = [
        ("questions", f"{summary.done:,} done, {summary.failed:,} failed, {summary.questions:,} requested"),
        ("failure causes", counts_text(summary.failures_by_cause)),
        ("steps in trees", f"{summary.nodes - summary.done:,}"),
        ("continuations", f"{summary.continuations:,}" if summary.continuations else "none from the root"),
        ("mean F1 / EM", f"{share_text(summary.mean_f1)} / {share_text(summary.mean_em)}"),
        *_outcome(summary),
        ("mixed outcomes", counted(summary.questions_mixed, "question")),
        ("distinct siblings", depths_text(summary.diversity_by_layer)),
        ("degenerate", counts_text(summary.degenerate)),
        ("unreadable replies", counts_text(summary.parse_failures_by_cause)),
        ("completions", f"{summary.calls:,} in {counted(summary.requests, 'request')}{finished}{cached}"),
        ("tokens", f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out{finished}{reasoning}"),
        ("cost of the run", dollars_or_unknown(summary.cost_usd)),
        *_left_out(summary),
        (
            "this session",
            f"{counted(summary.session_questions, 'question')} in {summary.session_seconds:,.1f} s, {attempts}",
        ),
    ]
    values = f"  values of {summary.value_model}" if summary.value_model else ""
    title = f"{summary.dataset}/{summary.split}  recipe {summary.recipe}  teacher {summary.model}{values}"
    print_table(title, rows)
    warn(_once(summary.warnings, warned))
    whole = (run / ROLLOUTS).exists()
    print_shown(f"wrote {run / ROLLOUTS}" if whole else f"wrote {run / RANKS}, which are merged when all are complete")
    if summary.failed:
        passing = summary.failures_by_cause.keys() - OF_THE_STATE
        retried = "; the same command retries those that may pass" if passing else ""
        print_prose(f"failure causes: {run / FAILURES}{retried}")
    for cause in sorted(summary.failures_by_cause.keys() & OF_THE_STATE):
        many, why = counted(summary.failures_by_cause[cause], "question"), cause.replace("_", " ")
        print_prose(
            f"{many} cannot pass in this run, as the first prompt is {why}: {AGAINST[cause]}; then take another --run"
        )
    if summary.stopped:
        print_prose(f"stopped: {summary.stopped.message}")
    elif of_a_rank := whole_of(run):
        print_next("merge", of_a_rank)
    elif summary.done:
        print_next("pairs", run, "--out", f"data/{run.name}")


def _once(warnings: Collection[str], warned: Collection[str]) -> list[str]:
    """The warnings, without the advice of those that the run has shown with other counts."""
    advised = {each.partition(": ")[2] for each in warned}
    return [
        f"{fact}; see the warning above" if advice and advice in advised else f"{fact}{colon}{advice}"
        for fact, colon, advice in (each.partition(": ") for each in warnings)
    ]


def _outcome(summary: RunSummary) -> list[tuple[str, str]]:
    """An extra row if gold answers do not decide the outcome."""
    by_gold = summary.outcome in OF_GOLDEN_ANSWERS
    return [] if by_gold else [(f"mean {summary.outcome} outcome", share_text(summary.mean_outcome))]


def _left_out(summary: RunSummary) -> list[tuple[str, str]]:
    """Extra rows of what requests went without, and of prompts that an endpoint cuts."""
    rows = []
    for name, refused in summary.refused_parameters.items():
        cut = recorded_cut({name: refused})
        if left := [each for each in refused if each != CUT_FROM.format(cut)]:
            rows.append((f"left out for {name}", ", ".join(left)))
        if cut:
            rows.append((f"prompts cut by {name}", f"from {cut:,} bytes"))
    return rows


def show_estimate(estimate: CostEstimate) -> None:
    """Show an estimate, and how it was measured."""
    rows = [
        ("questions", f"{estimate.questions:,}"),
        ("completions", f"{_range(estimate.calls)} in {_range(estimate.requests)} requests"),
        ("prompt tokens", _range(estimate.prompt_tokens)),
        ("completion tokens", _range(estimate.completion_tokens)),
        ("cost", _price_range(estimate)),
        *_costs_by_model(estimate),
        ("hours", f"{estimate.hours.low:.1f} to {estimate.hours.high:.1f}, limited by {estimate.limited_by}"),
    ]
    print_table(f"estimate  recipe {estimate.recipe}  teacher {estimate.model}", rows)
    long = "reasoning up to --max-reply-tokens" if estimate.reasoning else "long replies, without reasoning"
    print_prose(
        f"low: two standard errors below the mean of {counted(estimate.measured_questions, 'question')} rehearsed "
        f"by the offline teacher; high: the whole budget of the recipe, with {long}. No request was sent"
    )
    if estimate.dollars and estimate.dollars.high:
        print_prose(f"prices: {estimate.prices_as_of}; prompts from the endpoint's cache may cost less")


def _range(values: Range) -> str:
    return f"{values.low:,.0f} to {values.high:,.0f}"


def _dollars(values: Range) -> str:
    return f"{dollars_or_unknown(values.low)} to {dollars_or_unknown(values.high)}"


def _costs_by_model(estimate: CostEstimate) -> list[tuple[str, str]]:
    """One row per model with a price, if there are several models."""
    by_model = estimate.dollars_by_model
    return [(f"cost of {name}", _dollars(each)) for name, each in by_model.items() if each and len(by_model) > 1]


def _price_range(estimate: CostEstimate) -> str:
    if estimate.dollars is None:
        unknown = next(name for name, dollars in estimate.dollars_by_model.items() if dollars is None)
        flags = "--" if unknown == estimate.model else "--value-"
        return f"unknown: no price of {unknown} is known; give {flags}price-in and {flags}price-out"
    return _dollars(estimate.dollars)
