"""Terminal output of `evaluate-critic`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.critics.evaluation.report import REPORT, CriticEvaluation
from reasonrag.rendering import counted
from reasonrag.terminal import on_one_line, print_prose, print_shown, print_table


def show_critic_evaluation(found: CriticEvaluation) -> None:
    """Accuracy, controls, and the verdict."""
    print_table(f"critic {on_one_line(found.critic)}", _rows(found))
    _show_accuracies("pairs ranked right, by true gap", found.by_margin)
    _show_accuracies("by type of the better step", found.by_action_type)
    _show_accuracies("by depth", found.by_layer)
    for each in found.remarks:
        print_prose(f"- {each}")
    print_shown(f"wrote {Path(found.out) / REPORT}")
    if found.verdict == "failed":
        print_prose("NOT OFFERED: " + "; ".join(found.failures))
    elif found.verdict == "undecided":
        print_prose("undecided: " + "; ".join(found.undecided))
    else:
        print_prose("passed: the critic may be used")


def _rows(found: CriticEvaluation) -> Iterator[tuple[str, str]]:
    for run in found.runs:
        seen = f", {run.seen:,} left out as trained on" if run.seen else ""
        shown = f"{counted(run.questions, 'question')}{seen}, {counted(run.pairs, 'pair')} by {run.truth}"
        yield run.run, f"{shown}: {_share(run.accuracy)}"
    yield "pairs ranked right", _share(found.accuracy)
    if found.outcome_model and found.advantage:
        yield "the outcome model", _share(found.outcome_model)
        yield "advantage over it", _share(found.advantage, sign="+")
    yield "baseline: shorter step", _share(found.shorter)
    yield "baseline: step without its state", _share(found.step_only)
    lost = f", {found.given_up:,} failed (the same command retries them)" if found.given_up else ""
    yield "asked", f"{counted(found.calls, 'score')}, {found.session_calls:,} new{lost}"


def _share(each: Estimate, *, sign: str = "") -> str:
    if each.value is None or each.low is None or each.high is None:
        return "no cases"
    interval = f"{each.low:{sign}.1%} to {each.high:{sign}.1%}"
    return f"{each.value:{sign}.1%} ({interval}; {each.n:,} of {each.questions:,} questions)"


def _show_accuracies(title: str, found: Mapping[str, Estimate]) -> None:
    print_table(title, [(name, _share(each)) for name, each in found.items()])
