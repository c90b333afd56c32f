"""Which points a sweep has, and what answering them is expected to take.

Decides that one condition is varied at a time around the evaluation's own, and which replies its points share: with the
same top-k, all that come before the smaller budget is spent; with another, the first. Knows no file and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasonrag.evaluation.methods.method import StepBudget
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.sweeps.report import FigureName
from reasonrag.llm.expected_usage import ExpectedUsage, Range

ONE_SEARCH = ("rag",)
"""Methods that search once, whatever the budget."""
LONGER = 1.5
"""Prompts and replies at the high end, over the evaluation's mean: later prompts are longer."""


@dataclass(frozen=True)
class Point:
    """A budget and the passages per search."""

    max_steps: int
    top_k: int
    figures: tuple[FigureName, ...] = ()

    @property
    def searches(self) -> int:
        return StepBudget.of(self.max_steps).searches


def plan_points(own: Point, iterations: Iterable[int], top_ks: Iterable[int], *, method: str) -> list[Point]:
    """The points around an evaluation's own conditions, without repetition. iterations: numbers of searches; n are
    allowed by 2n + 1 steps."""
    figures: dict[tuple[int, int], tuple[FigureName, ...]] = {}
    for searches in sorted(set(iterations)) if method not in ONE_SEARCH else ():
        figures[2 * searches + 1, own.top_k] = ("iterations",)
    for top_k in sorted(set(top_ks)):
        figures[own.max_steps, top_k] = (*figures.get((own.max_steps, top_k), ()), "top-k")
    return [Point(max_steps, top_k, of) for (max_steps, top_k), of in figures.items()]


def expected_usage(
    points: Sequence[Point], own: Point, answered: Sequence[Prediction], *, replies_known: bool
) -> ExpectedUsage:
    """What the points will take in all, judging by how the evaluation went.

    points: in the order in which they are asked. answered: its predictions. replies_known: whether its journal is at
    hand, whose replies are not asked for again.
    """
    calls = sum(each.calls for each in answered) or 1
    prompt, completion = (sum(getattr(each, f"{name}_tokens") for each in answered) / calls for name in _KINDS)
    whole = ExpectedUsage(*(Range(low=0, high=0) for _ in range(4)))
    known = [own] if replies_known else []
    for each in points:
        low, high = _new_calls(each, own, known, answered)
        more = each.top_k / own.top_k
        requests = Range(low=low, high=high)
        prompts = Range(low=low * prompt * min(1, more), high=high * prompt * max(1, more) * LONGER)
        replies = Range(low=low * completion / LONGER, high=high * completion * LONGER)
        whole += ExpectedUsage(requests, requests, prompts, replies)
        known.append(each)
    return whole


_KINDS = ("prompt", "completion")


def _new_calls(point: Point, own: Point, known: Sequence[Point], answered: Sequence[Prediction]) -> tuple[float, float]:
    """Fewest and most completions of a point that no known one has had."""
    alike = [each.max_steps for each in known if each.top_k == point.top_k]
    if not alike:  # the first reply of each question was shown no passages
        calls = sum(each.calls for each in answered)
        return max(0, calls - len(answered) * bool(known)) / LONGER, LONGER * calls
    if any(each > point.max_steps for each in alike):
        return 0, sum(each.searches > point.searches for each in answered)
    reached = max(alike)
    going_on = sum(each.searches >= min(own.searches, StepBudget.of(reached).searches) for each in answered)
    return (going_on if reached == own.max_steps else 0), going_on * (point.max_steps - reached + 1)
