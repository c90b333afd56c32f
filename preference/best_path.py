"""The record of an explored question: how its continuations ended, the best path to a right answer, its plain steps.

Decides which path is the best, and which paths or steps critics leave for fine-tuning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, PrivateAttr

from preference.answer_scores import label_cover_em
from preference.candidate_records import Ends, Origin, PathStep, PlainStep, QuestionRecord
from preference.labelling import origin_of
from preference.records import RolloutNode, RolloutRecord, shared_fields, state_key

AnyStep = TypeVar("AnyStep", RolloutNode, PlainStep)


def question_record(
    rollout: RolloutRecord, run_origin: Origin | None = None, *, every_step: bool = False
) -> QuestionRecord:
    """The line of `questions.jsonl` for a rollout. run_origin: what the run's configuration adds to the record.
    every_step: with its plain steps, which plain attempts have in any case."""
    wanted = every_step or rollout.recipe.group is not None
    steps = plain_steps(rollout) if wanted else []
    return QuestionRecord(
        **shared_fields(rollout, QuestionRecord),
        origin=origin_of(rollout, run_origin),
        ends=ends_of(rollout),
        path=None if rollout.error else best_path(rollout),
        group=rollout.recipe.group,
        plain_steps=steps,
        not_plain=sum(node.draws for node in rollout.nodes[1:]) - sum(each.draws for each in steps) if wanted else 0,
    )


def plain_steps(rollout: RolloutRecord) -> list[PlainStep]:
    """The steps whose draws count, as all before them do, and below which an outcome is known; none that the model
    reasoned before, as its record lacks what was said there."""
    found = dict[int, PlainStep]()
    for node in rollout.nodes[1:]:  # parents come first
        draws = node.plain_draws - node.decisive_draws
        value = node.rollouts[0].quality if node.terminal and node.rollouts else node.expected_outcome
        follows = not node.parent_id or node.parent_id in found
        if draws and value is not None and follows and not node.reasoning:
            told = {"state_id": state_key(node.prompt or []), "draws": draws, "value": value}
            ends = {"outcome": value, "right": _is_right(rollout, node)} if node.terminal else {}
            found[node.id] = PlainStep(**shared_fields(node, PlainStep) | told | ends)
    return [*found.values()]


def right_attempts(question: QuestionRecord) -> list[list[PathStep]]:
    """The steps of all right attempts, the best path first."""
    by_id = {each.id: each for each in question.plain_steps}
    paths = [steps_to(by_id, end) for end in question.plain_steps if end.right]
    attempts = [[PathStep(**shared_fields(each, PathStep)) for each in path] for path in paths]
    return ([question.path] if question.path else []) + [each for each in attempts if each != question.path]


def ends_of(rollout: RolloutRecord) -> Ends:
    """How the continuations of a tree ended; partial outcomes are mixed, also where all are equal."""
    outcomes = {end.quality for node in rollout.nodes for end in node.rollouts}
    if not outcomes:
        return "unknown"
    if outcomes in ({1.0}, {0.0}):
        return "all_right" if 1.0 in outcomes else "all_wrong"
    return "mixed"


def best_path(rollout: RolloutRecord) -> list[PathStep] | None:
    """The steps to the right answer of the highest reward; on a tie the shortest path, then the earliest.

    An answer is right if its outcome is 1: it equals a gold answer and, if the recipe asks for that, stands in
    evidence; a judge's score must be at least .9. Every step must have parsed without a repair.
    """
    right = [node for node in rollout.nodes[1:] if node.terminal and _is_right(rollout, node)]
    for answer in sorted(right, key=lambda node: (-(node.reward or 0.0), node.layer or 0, node.id)):
        steps = steps_to(rollout.nodes, answer)
        if all(step.parse_error is None and not step.repaired for step in steps):
            return [PathStep(**shared_fields(step, PathStep)) for step in steps]
    return None


RIGHT, RIGHT_TO_A_JUDGE = 1.0, 0.9
"""Lowest outcome of a right answer: by gold answers, and by a judge's score."""


def _is_right(rollout: RolloutRecord, answer: RolloutNode) -> bool:
    if answer.parse_error is not None:
        return False
    if answer.outcome is None:
        return (answer.f1 or 0.0) >= RIGHT and bool(label_cover_em(answer.content or "", rollout.golden_answers))
    least = RIGHT if answer.outcome.name in ("f1", "em", "evident_f1") else RIGHT_TO_A_JUDGE
    return answer.outcome.value is not None and answer.outcome.value >= least


def steps_to(by_id: Mapping[int, AnyStep] | Sequence[AnyStep], step: AnyStep) -> list[AnyStep]:
    """The steps from the question on, this one included."""
    steps = [step]
    while steps[-1].parent_id:
        steps.append(by_id[steps[-1].parent_id])
    return steps[::-1]


class Refinement(BaseModel):
    """What critics leave of right attempts to fine-tune on (ProRAG, arXiv 2601.21912): best paths whose every step
    scores at least a threshold, or the steps of all attempts, each for itself, as the published code takes them.

    share: of the scored steps, those that are kept: the level of a pairwise critic's scores means nothing. Steps that
        score the same as the last of them are kept, too. None: the threshold was given.
    """

    refine: Literal["paths", "steps"] = "paths"
    threshold: float = 0.0
    share: float | None = None
    paths: int = 0
    """Best ones, or all right attempts."""
    steps: int = 0
    """Of these; with `refine` steps different ones."""
    kept: int = 0
    """Paths or steps, as `unscored`: those that no critic scored, or not whole, which are left out."""
    unscored: int = 0
    kept_by_action_type: Counter[str] = Counter()
    _seen: set[int] = PrivateAttr(default_factory=set)

    @classmethod
    def of_share(cls, share: float, questions: Iterable[QuestionRecord]) -> Self:
        """Keeps a share of the steps of these questions, one at least."""
        every = cls(refine="steps")
        parts = (each for question in questions for [each] in every._parts(question))
        scores = sorted(each.critic_score for each in parts if each.critic_score is not None)
        kept = max(1, int(share * len(scores) + 1e-9))  # .29 of 100 are 29
        return cls(refine="steps", threshold=scores[-kept] if scores else 0.0, share=share)

    def steps_of(self, question: QuestionRecord) -> list[PathStep]:
        """The kept steps, in their order; they are counted."""
        kept = list[PathStep]()
        self.paths += len(right_attempts(question)) if self.refine == "steps" else bool(question.path)
        for part in self._parts(question):
            scores = [each.critic_score for each in part]
            self.steps += len(part)
            self.unscored += None in scores
            if all(each is not None and each >= self.threshold for each in scores):
                self.kept += 1
                kept += part
        self.kept_by_action_type.update(each.action_type for each in kept)
        return kept

    def _parts(self, question: QuestionRecord) -> Iterator[list[PathStep]]:
        """What is kept or left as one: the best path, or each step that no earlier attempt at the question has."""
        if self.refine == "paths":
            yield from [question.path] if question.path else []
            return
        for step in chain.from_iterable(right_attempts(question)):
            text = hash((*(turn.content for turn in step.prompt), step.response))
            if text not in self._seen:
                self._seen.add(text)
                yield [step]
