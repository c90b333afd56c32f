"""Pairwise judgements for `compare --judge`: of two answers to a question, which is better.

Each pair is asked about twice, with the places exchanged, because judges prefer a place (arXiv 2306.05685, section
3.4). A preference counts where both times the same answer is chosen; anything else is a tie. An answer is better than
none without asking. The judge sees the question and the two answers: no gold answers, so that these tell how often it
is right, and nothing of the way. Does not know what a difference means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from preference import Message
from preference.records import Record
from preference.statistics import Share, share_of
from reasonrag.agent.model_calls import Judgement, ModelCaller
from reasonrag.agent.parsing import parse_pick
from reasonrag.agent.prompting import Prompts, render_preference
from reasonrag.errors import ModelError
from reasonrag.evaluation.comparability import Condition
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.significance import Values
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.run.engine import Asked, Budget, Role, claimed, open_run

_JUDGE = "judge"
_SHORT_REPLY_TOKENS = 10
REFERENCE, OTHER, TIE = 0.0, 1.0, 0.5
"""Values of a preference: the share of it that the other side has."""
_CHOSEN: dict[tuple[int, int] | str, float] = {"none": TIE, (1, 2): REFERENCE, (2, 1): OTHER}
"""Of a pick where the reference stands first."""


class Preferences(Record):
    """What the judge prefers, counted over pairs of answers; with several seeds a question has a pair for each.

    preferred: the other condition's answer; reference_preferred: the reference's. turned: ties for which each order had
    another answer chosen. unjudged: without a readable judgement; failed: of these, those that the same command asks
    for again. agrees_with_gold: how often the right answer is preferred, where by cover-EM one is right and one wrong.
    """

    judge: str
    preferred: int
    reference_preferred: int
    ties: int
    turned: int
    unjudged: int
    failed: int
    agrees_with_gold: Share


class AnswerPair(NamedTuple):
    """Answers of the reference and of another condition, by their places among the conditions, to one question."""

    other: int
    seed: int
    question: int
    sides: tuple[Prediction, Prediction]


@dataclass(frozen=True)
class PairwiseJudge:
    """The judge of a comparison. prices: as given for models. model: asked instead of opening one."""

    spec: ModelSpec
    prompts: Prompts
    budget: Budget
    prices: Sequence[str] = ()
    model: ChatModel | None = None


_Verdict: TypeAlias = tuple[float | None, float | None]
"""A preference in each of both orders; None where it could not be read."""


@dataclass(frozen=True)
class PairwiseJudgements:
    """The work of a comparison's judge; see `reasonrag.run.engine.Work`. verdicts: by pair, of those that are done."""

    pairs: Sequence[AnswerPair]
    judge: PairwiseJudge
    cost_usd: float | None = None
    verdicts: dict[tuple[int, int, int], _Verdict] = field(default_factory=dict)
    noun: str = "pair of answers"

    @property
    def at_once(self) -> int:
        return self.judge.spec.limits.concurrency

    def items(self) -> Sequence[AnswerPair]:
        return self.pairs

    def question_of(self, item: AnswerPair) -> str:
        return item.sides[0].question_id

    async def do(self, item: AnswerPair, asked: Asked) -> None:
        answers = [each.answer for each in item.sides]
        if answers[0] == answers[1] or None in answers:
            known = TIE if answers[0] == answers[1] else float(answers[0] is None)
            self.verdicts[item[:3]] = known, known
            return
        caller = ModelCaller(asked.models[_JUDGE], self.judge.prompts, self.judge.spec.sampling, seed=0)
        question = self.question_of(item)
        try:
            said: list[Judgement[tuple[int, int] | Literal["none"]]] = [
                await caller.judgement(
                    question,
                    messages,
                    0,
                    tag="pick",
                    wanted="the numbers 1 and 2, the better one first, or none",
                    read=lambda reply: parse_pick(reply.text, ending_of(reply), candidates=2),
                )
                for messages in self._messages(item)
            ]
        except ModelError as error:
            asked.failure(error, "preference", {"question_id": question})
            return
        for each in said:
            if each.unreadable is not None:
                asked.note(
                    "preference", question_id=question, cause=each.cause or "unreadable", message=each.unreadable
                )
        first, second = (None if each.value is None else _CHOSEN[each.value] for each in said)
        self.verdicts[item[:3]] = first, None if second is None else 1 - second

    def _messages(self, item: AnswerPair) -> list[tuple[Message, ...]]:
        """In both orders: the reference first, then the other."""
        one, other = (each.answer or "" for each in item.sides)
        return [
            render_preference(self.judge.prompts, item.sides[0].question, each) for each in ((one, other), (other, one))
        ]

    def described(self, count: int) -> str:
        return f"{counted(count, self.noun)}, each in both orders"

    async def expected(self, owed: Iterable[AnswerPair], *_: object, **__: object) -> list[ExpectedUsage]:
        prompts = [each for item in owed for each in self._messages(item)]
        return [ExpectedUsage.of_replies(prompts, lines=len(prompts), shortest=_SHORT_REPLY_TOKENS)]

    def value(self, pair: AnswerPair) -> float | None:
        """The preference: REFERENCE, OTHER or TIE; None without a readable judgement."""
        first, second = self.verdicts.get(pair[:3], (None, None))
        if first is None or second is None:
            return None
        return first if first == second else TIE

    def of_condition(self, other: int, seeds: int, questions: int) -> tuple[Values, Preferences]:
        """Preferences for one of the other conditions, shape (seeds, questions), nan without one; and their counts."""
        pairs = [each for each in self.pairs if each.other == other]
        values = np.full((seeds, questions), np.nan)
        for each in pairs:
            if (found := self.value(each)) is not None:
                values[each.seed, each.question] = found
        known = [(each, found) for each in pairs if (found := self.value(each)) is not None]
        right = [(found, (one.cover_em, two.cover_em)) for (*_, (one, two)), found in known]
        decided = [found == right_one for found, (one, right_one) in right if {one, right_one} == {0.0, 1.0}]
        given = [found for _, found in known]
        counts = Preferences(
            judge=self.judge.spec.name,
            preferred=given.count(OTHER),
            reference_preferred=given.count(REFERENCE),
            ties=given.count(TIE),
            turned=sum(set(self.verdicts.get(each[:3], ())) == {REFERENCE, OTHER} for each in pairs),
            unjudged=len(pairs) - len(known),
            failed=sum(each[:3] not in self.verdicts for each in pairs),
            agrees_with_gold=share_of(sum(decided), len(decided)),
        )
        return values, counts


def answer_pairs(conditions: Sequence[Condition], questions: Sequence[str]) -> list[AnswerPair]:
    """Of the first condition with each other; a seed with the seed of the same place, the fewer ones again."""
    reference, *others = conditions
    return [
        AnswerPair(place, seed, number, (ours.predictions[each], theirs.predictions[each]))
        for place, other in enumerate(others)
        for seed in range(max(len(reference.seeds), len(other.seeds)))
        for ours, theirs in [(side.seeds[seed % len(side.seeds)] for side in (reference, other))]
        for number, each in enumerate(questions)
    ]


async def judge_pairs(
    pairs: Sequence[AnswerPair], judge: PairwiseJudge, out: Path, watcher: Watcher
) -> PairwiseJudgements:
    """Have every pair judged, with journal and failures in `out`.

    Raises InputError where the judge cannot be asked, RunStopped where a cap or a lost endpoint ended it,
    KeyboardInterrupt where Ctrl-C did: answers are kept, and the same call goes on.
    """
    capped = judge.budget.caps.cost is not None
    check_prices(watcher.say, judge.spec, given=judge.prices, capped=capped)
    async with AsyncExitStack() as opened:

        async def open_model() -> ChatModel:
            return judge.model or judge.spec.open(opened, say=watcher.say)

        work = PairwiseJudgements(pairs, judge)
        with claimed(out, flag="--out"):
            async with open_run(out, {_JUDGE: Role(judge.spec, open_model)}, watcher, judge.budget) as run:
                await run.complete(work, work)
            return replace(work, cost_usd=run.models.cost)
