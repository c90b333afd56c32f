"""What a person sees: progress on stderr, tables on stdout. Text of models and passages is never markup here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preference import GoldAgreement, PairSummary
from preference.export.exporting import CANDIDATES, DROPPED, EffectiveSize
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.curation.judge_labels import Judging
from reasonrag.exploration.cost_estimate import Estimate, Range
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import FAILURES, ROLLOUTS
from reasonrag.terminal import (
    counts_text,
    dollars_or_unknown,
    print_table,
    questions_text,
    share_text,
    share_with_interval,
    shares_text,
    ties_text,
    warn,
)


def show_run(summary: RunSummary) -> None:
    """The summary of `generate`, then where things are and what comes next."""
    run, attempts = Path(summary.run), f"{summary.session_failed_calls:,}"
    rows = [
        ("questions", f"{summary.done:,} done, {summary.failed:,} failed, {summary.questions:,} asked for"),
        ("failed because of", counts_text(summary.failures_by_cause)),
        ("steps in trees", f"{summary.nodes:,}"),
        ("continuations", f"{summary.continuations:,}"),
        ("mean F1 / EM", f"{share_text(summary.mean_f1)} / {share_text(summary.mean_em)}"),
        *_outcome(summary),
        ("mixed outcomes", f"{summary.questions_mixed:,} questions"),
        ("distinct siblings", shares_text(summary.diversity_by_layer, "layer")),
        ("degenerate", counts_text(summary.degenerate)),
        ("unreadable replies", counts_text(summary.parse_failures_by_cause)),
        ("calls", f"{summary.calls:,} replies in {summary.requests:,} requests{_from_journal(summary)}"),
        ("tokens", f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out"),
        ("cost of the run", dollars_or_unknown(summary.cost_usd)),
        (
            "this session",
            f"{summary.session_questions:,} questions in {summary.session_seconds:.1f} s, {attempts} failed attempts",
        ),
    ]
    values = f"  values of {summary.value_model}" if summary.value_model else ""
    title = f"{summary.dataset}/{summary.split}  recipe {summary.recipe}  teacher {summary.model}{values}"
    print_table(title, rows)
    warn(summary.warnings)
    print(f"wrote {run / ROLLOUTS}")
    if summary.failed:
        print(f"why questions failed: {run / FAILURES}; the same command tries them again")
    if summary.stopped:
        print(f"stopped: {summary.stopped.message}")
    elif summary.done:
        print(f"next: reasonrag pairs {run} --out data/{run.name}")


def _outcome(summary: RunSummary) -> list[tuple[str, str]]:
    """A row of its own where golden answers do not say what an answer is worth."""
    by_gold = summary.outcome in OF_GOLDEN_ANSWERS
    return [] if by_gold else [(f"mean {summary.outcome} outcome", share_text(summary.mean_outcome))]


def _from_journal(summary: RunSummary) -> str:
    cached = summary.session_cached_calls
    return f", {cached:,} of them from the journal" if cached else ""


def show_estimate(estimate: Estimate) -> None:
    """What a run would take, then how that was found out."""
    rows = [
        ("questions", f"{estimate.questions:,}"),
        ("calls", f"{_range(estimate.calls)} replies in {_range(estimate.requests)} requests"),
        ("prompt tokens", _range(estimate.prompt_tokens)),
        ("completion tokens", _range(estimate.completion_tokens)),
        ("cost", _price_range(estimate)),
        *_costs_by_model(estimate),
        ("hours", f"{estimate.hours.low:.1f} to {estimate.hours.high:.1f}, limited by {estimate.limited_by}"),
    ]
    print_table(f"estimate  recipe {estimate.recipe}  teacher {estimate.model}", rows)
    if estimate.measured_by == "pilot":
        print(f"measured on {questions_text(estimate.measured_questions)} of this run, mean and two standard errors")
        print(f"the pilot has cost {dollars_or_unknown(estimate.spent_dollars)}; the run goes on from there")
        if estimate.failed:
            print(
                f"{questions_text(estimate.failed)} failed and count for nothing here; the same command tries them again"
            )
        if estimate.stopped:
            print(f"the pilot stopped early, so this is measured on fewer than was asked: {estimate.stopped.message}")
    else:
        print(
            f"low: {estimate.measured_questions:,} questions rehearsed by the offline teacher; high: the whole "
            "budget of the recipe, with long replies. Nothing was asked; --pilot 10 measures it"
        )
    if estimate.dollars and estimate.batch_discount:
        print(
            f"list prices of {estimate.prices_as_of}; the endpoint's prompt cache (${estimate.cached_price_in:g} per "
            f"million) would cost less, a Batch API, which reasonrag does not use, {estimate.batch_discount:.0%} less"
        )


def _range(values: Range) -> str:
    return f"{values.low:,.0f} to {values.high:,.0f}"


def _costs_by_model(estimate: Estimate) -> list[tuple[str, str]]:
    """A row for each where there are several with a price."""
    known = [(name, dollars) for name, dollars in estimate.dollars_by_model.items() if dollars]
    several = len(estimate.dollars_by_model) > 1
    return [
        (f"of {name}", f"{dollars_or_unknown(each.low)} to {dollars_or_unknown(each.high)}")
        for name, each in known
        if several
    ]


def _price_range(estimate: Estimate) -> str:
    if estimate.dollars is None:
        unknown = next(name for name, dollars in estimate.dollars_by_model.items() if dollars is None)
        flags = "--" if unknown == estimate.model else "--value-"
        return (
            f"no price of {unknown} in the table of {estimate.prices_as_of}; give {flags}price-in and {flags}price-out"
        )
    return f"{dollars_or_unknown(estimate.dollars.low)} to {dollars_or_unknown(estimate.dollars.high)}"


def show_pairs(summary: PairSummary) -> None:
    """The summary of `pairs`, then what was written."""
    effective = summary.effective
    rows = [
        ("questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"),
        ("without one because", counts_text(summary.without_a_pair)),
        ("pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"),
        ("of them for validation", f"{summary.validation_pairs:,} of {questions_text(summary.validation_questions)}"),
        *([("sides exchanged", f"{summary.flipped:,}")] if summary.flipped else []),
        *_judging_rows(summary.judging),
        ("worth at least", _effective(effective)),
        ("mean confidence", share_text(summary.mean_confidence)),
        ("by chosen action", counts_text(summary.pairs_by_action_type)),
        ("by layer", counts_text(summary.pairs_by_layer)),
        ("same type on both sides", f"{summary.same_type_pairs:,}"),
        ("tagged", counts_text(summary.pairs_by_tag)),
        *_gold_row(summary.gold_agreement),
        ("dropped", counts_text(summary.dropped)),
        ("looked for in", _looked_for_in(summary.contamination)),
    ]
    print_table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    warn(summary.warnings)
    out = Path(summary.out)
    for name, count in summary.files.items():
        print(f"wrote {out / name} ({count:,} rows)")
    print(f"every candidate: {out / CANDIDATES}; why one was dropped: {out / DROPPED}")


def _judging_rows(judging: dict[str, Any]) -> list[tuple[str, str]]:
    """What a judge said; nothing where none was asked."""
    if not judging:
        return []
    found = Judging.model_validate(judging)
    said = f"{found.picked:,} picks, {found.none:,} times none, {found.unreadable:,} unreadable"
    lost = f", {found.given_up:,} given up (the same command asks again)" if found.given_up else ""
    return [
        (f"judged by {found.model}", f"{found.states:,} states: {said}{lost}"),
        ("agrees with the values", share_with_interval(found.agrees_with_values)),
        (
            "cost of judging",
            f"{dollars_or_unknown(found.cost_usd)}, {found.calls:,} replies, {found.session_calls:,} now",
        ),
    ]


def _looked_for_in(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were compared with, and how many stand in one."""
    checked = contamination.get("checked") or []
    if not checked:
        return "no evaluation split"
    asked, found = sum(each["questions"] for each in checked), contamination["questions"]
    splits = "1 evaluation split" if len(checked) == 1 else f"{len(checked):,} evaluation splits"
    return f"{splits} with {questions_text(asked)}: {found:,} found, {contamination['dropped']:,} left out"


def _effective(effective: EffectiveSize) -> str:
    """Pairs that would be independent if all of a state, or of a question, said the same."""
    if effective.by_state is None or effective.by_question is None:
        return "-"
    return (
        f"{effective.by_state:,.0f} if pairs of a state say the same ({effective.states:,} states), "
        f"{effective.by_question:,.0f} if those of a question do"
    )


def _gold_row(agreement: dict[str, GoldAgreement]) -> list[tuple[str, str]]:
    """How often gold passages agree with the chosen side, ties left out; no row where none are known."""
    shown = [f"{name} {_agreement(each)}" for name, each in agreement.items()]
    return [("agree with gold passages", ", ".join(shown))] if shown else []


def _agreement(each: GoldAgreement) -> str:
    decided = each.right + each.wrong
    share = f"{each.right / decided:.2f}" if decided else "-"
    return f"{share} ({each.right:,} of {decided:,}, {ties_text(each.ties)})"
