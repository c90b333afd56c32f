"""Terminal output of `train-critic`."""

from __future__ import annotations

from reasonrag.critics.train import CriticResult
from reasonrag.rendering import counted
from reasonrag.terminal import print_next, print_prose, print_table


def show_critic(result: CriticResult) -> None:
    """What was trained, its last metrics, and the next command."""
    for part in result.folds or [result]:
        _show_one(part)
    if result.state == "dry run":
        return
    if result.folds:
        print_next("pairs", "RUN", "--consensus", *(word for each in result.folds for word in ("--critic", each.out)))
    else:
        print_next("evaluate-critic", result.out, "RUN")


def _show_one(result: CriticResult) -> None:
    rows = {
        "critic": f"{result.state}: {result.out}",
        "labels": result.labels,
        "rows": f"{result.rows:,} of {counted(result.questions, 'question')}, {result.held_out_rows:,} held out",
    }
    if result.steps is not None:
        rows["steps"] = f"{result.steps:,}" + (f", resumed from {result.resumed_from}" if result.resumed_from else "")
    shown = {"loss": "loss", "eval_loss": "loss, held out", "eval_accuracy": "pairs ranked as labelled, held out"}
    rows |= {told: f"{result.results[name]:.3f}" for name, told in shown.items() if name in result.results}
    print_table("Critic", rows.items())
    for note in [*result.notes, *result.warnings, *result.objections]:
        print_prose(f"- {note}")
