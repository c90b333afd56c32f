"""The record of an explored question: how its continuations ended, and the best path to a right answer.

Decides which path is the best, and which critics leave for fine-tuning.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from preference.answer_scores import label_cover_em
from preference.candidate_records import Ends, Origin, PathStep, QuestionRecord
from preference.labelling import origin_of
from preference.records import RolloutNode, RolloutRecord, shared_fields


def question_record(rollout: RolloutRecord, run_origin: Origin | None = None) -> QuestionRecord:
    """The line of `questions.jsonl` for a rollout. run_origin: what the run's configuration adds to the record."""
    return QuestionRecord(
        question_id=rollout.question_id,
        question=rollout.question,
        golden_answers=rollout.golden_answers,
        hops=rollout.hops,
        origin=origin_of(rollout, run_origin),
        error=rollout.error,
        ends=ends_of(rollout),
        usage=rollout.usage,
        path=None if rollout.error else best_path(rollout),
    )


def ends_of(rollout: RolloutRecord) -> Ends:
    """How the continuations of a tree ended; partial outcomes are mixed, also where all are equal."""
    outcomes = {end.quality for node in rollout.nodes for end in node.rollouts}
    if not outcomes:
        return "unknown"
    if outcomes in ({1.0}, {0.0}):
        return "all_right" if 1.0 in outcomes else "all_wrong"
    return "mixed"


def best_path(rollout: RolloutRecord) -> list[PathStep] | None:
    """The steps to the right answer with the highest reward; on a tie the shortest path, then the earliest.

    An answer is right if its outcome is 1: it equals a gold answer and, if the recipe asks for that, stands in
    evidence; a judge's score must be at least .9. Every step must have parsed without a repair.
    """
    right = [node for node in rollout.nodes[1:] if node.terminal and _is_right(rollout, node)]
    for answer in sorted(right, key=lambda node: (-(node.reward or 0.0), node.layer or 0, node.id)):
        steps = _steps_to(rollout, answer)
        if all(step.parse_error is None and not step.repaired for step in steps):
            return [PathStep(**shared_fields(step, PathStep)) for step in steps]
    return None


RIGHT, RIGHT_TO_A_JUDGE = 1.0, 0.9
"""Lowest outcome of a right answer: by gold answers, and by a judge's score."""
_BY_GOLDEN_ANSWERS = ("f1", "em", "evident_f1")


def _is_right(rollout: RolloutRecord, answer: RolloutNode) -> bool:
    if answer.parse_error is not None:
        return False
    if answer.outcome is None:
        return (answer.f1 or 0.0) >= RIGHT and bool(label_cover_em(answer.content or "", rollout.golden_answers))
    least = RIGHT if answer.outcome.name in _BY_GOLDEN_ANSWERS else RIGHT_TO_A_JUDGE
    return answer.outcome.value is not None and answer.outcome.value >= least


def _steps_to(rollout: RolloutRecord, answer: RolloutNode) -> list[RolloutNode]:
    steps = [answer]
    while steps[-1].parent_id:
        steps.append(rollout.nodes[steps[-1].parent_id])
    return steps[::-1]


class Refinement(BaseModel):
    """Best paths, all with a right answer, of which every step scores at least a threshold: ProRAG's refinement set
    (arXiv 2601.21912)."""

    threshold: float
    paths: int = 0
    kept: int = 0
    unscored: int = 0
    """Paths with a step that no critic scored; they are left out."""

    def keeps(self, path: Sequence[PathStep]) -> bool:
        """Whether every step of a path scores at least the threshold; it is counted."""
        scores = [step.critic_score for step in path]
        kept = all(score is not None and score >= self.threshold for score in scores)
        self.paths += 1
        self.kept += kept
        self.unscored += any(score is None for score in scores)
        return kept
