"""The record of an explored question: how its continuations ended, and the best path to a right answer.

Decides which path is the best, and which paths or steps critics leave for fine-tuning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from pydantic import BaseModel, PrivateAttr

from preference.answer_scores import label_cover_em
from preference.candidate_records import Ends, Origin, PathStep, QuestionRecord, question_key
from preference.labelling import origin_of
from preference.records import RolloutNode, RolloutRecord, shared_fields


def question_record(rollout: RolloutRecord, run_origin: Origin | None = None) -> QuestionRecord:
    """The line of `questions.jsonl` for a rollout. run_origin: what the run's configuration adds to the record."""
    paths = iter(()) if rollout.error else right_paths(rollout)
    return QuestionRecord(
        question_id=rollout.question_id,
        question=rollout.question,
        golden_answers=rollout.golden_answers,
        hops=rollout.hops,
        origin=origin_of(rollout, run_origin),
        error=rollout.error,
        ends=ends_of(rollout),
        usage=rollout.usage,
        path=next(paths, None),
        more_paths=[*paths] if rollout.recipe.group else [],
    )


def ends_of(rollout: RolloutRecord) -> Ends:
    """How the continuations of a tree ended; partial outcomes are mixed, also where all are equal."""
    outcomes = {end.quality for node in rollout.nodes for end in node.rollouts}
    if not outcomes:
        return "unknown"
    if outcomes in ({1.0}, {0.0}):
        return "all_right" if 1.0 in outcomes else "all_wrong"
    return "mixed"


def right_paths(rollout: RolloutRecord) -> Iterator[list[PathStep]]:
    """The steps to each right answer, by falling reward; on a tie the shortest path, then the earliest.

    An answer is right if its outcome is 1: it equals a gold answer and, if the recipe asks for that, stands in
    evidence; a judge's score must be at least .9. Every step must have parsed without a repair.
    """
    right = [node for node in rollout.nodes[1:] if node.terminal and _is_right(rollout, node)]
    for answer in sorted(right, key=lambda node: (-(node.reward or 0.0), node.layer or 0, node.id)):
        steps = _steps_to(rollout, answer)
        if all(step.parse_error is None and not step.repaired for step in steps):
            yield [PathStep(**shared_fields(step, PathStep)) for step in steps]


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

    def steps_of(self, question: QuestionRecord) -> Sequence[PathStep]:
        """Those of its best path, if that is kept."""
        return question.path if question.path and self.keeps(question.path) else ()

    def keeps(self, path: Sequence[PathStep]) -> bool:
        """Whether every step of a path scores at least the threshold; it is counted."""
        scores = [step.critic_score for step in path]
        kept = all(score is not None and score >= self.threshold for score in scores)
        self.paths += 1
        self.kept += kept
        self.unscored += any(score is None for score in scores)
        return kept


class StepRefinement(BaseModel):
    """The steps of right attempts that score high enough, each for itself, as the code of ProRAG takes them.

    share: of the scored steps, those that are kept: the level of a pairwise critic's scores means nothing. Steps that
        score the same as the last of them are kept, too. None: the threshold was given.
    """

    threshold: float
    share: float | None = None
    attempts: int = 0
    steps: int = 0
    """Different ones of a question."""
    kept: int = 0
    kept_by_action_type: dict[str, int] = {}
    unscored: int = 0
    """Steps that no critic scored; they are left out."""
    _question: str = PrivateAttr("")
    _seen: set[tuple[str, ...]] = PrivateAttr(default_factory=set)

    @classmethod
    def of_share(cls, share: float, questions: Iterable[QuestionRecord]) -> Self:
        """Keeps a share of the steps of these questions, one at least."""
        every = cls(threshold=0.0)
        scores = sorted(
            each.critic_score for one in questions for each in every._new(one) if each.critic_score is not None
        )
        return cls(threshold=scores[-max(1, int(share * len(scores)))] if scores else 0.0, share=share)

    def steps_of(self, question: QuestionRecord) -> Sequence[PathStep]:
        """The kept steps of its right attempts, in their order; they are counted."""
        steps = [*self._new(question)]
        kept = [each for each in steps if each.critic_score is not None and each.critic_score >= self.threshold]
        self.attempts += len(question.right_attempts)
        self.steps += len(steps)
        self.kept += len(kept)
        self.unscored += sum(each.critic_score is None for each in steps)
        types = Counter(self.kept_by_action_type) + Counter(each.action_type for each in kept)
        self.kept_by_action_type = dict(sorted(types.items()))
        return kept

    def _new(self, question: QuestionRecord) -> Iterator[PathStep]:
        """Its steps but those that an earlier attempt has, or an earlier tree of the question."""
        if (key := question_key(question.question)) != self._question:
            self._question, self._seen = key, set()
        for each in (step for attempt in question.right_attempts for step in attempt):
            text = *(turn.content for turn in each.prompt), each.response
            if text not in self._seen:
                self._seen.add(text)
                yield each
