"""Pairwise judgements for `compare --judge`: of two answers to a question, which is better.

Each pair is asked about twice, with the places exchanged, because judges prefer a place (arXiv 2306.05685, section
3.4). A preference counts where both times the same answer is chosen; anything else is a tie. An answer is better than
none without asking. The judge sees the question and the two answers: no gold answers, so that these tell how often it
is right, and nothing of the way. Does not know what a difference means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from preference import Message
from preference.answer_scores import label_cover_em
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
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.model_spec import LazyModel, ModelSpec, check_prices
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.run.engine import Asked, Budget, Role, claimed, open_run

_JUDGE = "judge"
_SHORT_REPLY_TOKENS = 10
_TIE = 0.5
_IN_ORDER: dict[tuple[int, int] | str, float] = {"none": _TIE, (1, 2): 0.0, (2, 1): 1.0}
_EXCHANGED = {picked: 1 - share for picked, share in _IN_ORDER.items()}
"""Of a pick, the share of the preference that the second answer has, in both orders."""
_COUNTED = {0.0: "reference_preferred", 1.0: "preferred", _TIE: "ties"}


class Preferences(Record):
    """What the judge prefers, counted over pairs of answers; with several seeds a question has a pair for each.

    preferred: the other condition's answer; reference_preferred: the reference's. by_rule: of all these, those decided
    without asking: an answer against none, and equal ones. turned: ties for which each order had another answer chosen.
    unjudged: without a readable judgement; failed: of these, those that the same command asks for again.
    agrees_with_gold: of the pairs asked about of which by their gold answers one is right and one wrong, the share
    where the judge prefers the right one.
    """

    judge: str
    preferred: int = 0
    reference_preferred: int = 0
    ties: int = 0
    by_rule: int = 0
    turned: int = 0
    unjudged: int = 0
    failed: int = 0
    agrees_with_gold: Share


class AnswerPair(NamedTuple):
    """Two different answers to a question, in the order of the alphabet, so that each two are asked about once."""

    question_id: str
    question: str
    first: str
    second: str


@dataclass(frozen=True)
class PairwiseJudge:
    """The judge of a comparison. prices: as given for models. model: asked instead of opening one."""

    spec: ModelSpec
    prompts: Prompts
    budget: Budget
    prices: Sequence[str] = ()
    model: ChatModel | None = None


@dataclass(frozen=True)
class PairwiseJudgements:
    """The work of a comparison's judge; see `reasonrag.run.engine.Work`.

    verdicts: of pairs that are done, the share that the second answer has in each order; None for an unreadable reply.
    """

    pairs: Sequence[AnswerPair]
    judge: PairwiseJudge
    cost_usd: float | None = None
    verdicts: dict[AnswerPair, tuple[float | None, float | None]] = field(default_factory=dict)
    noun: str = "answer pair"

    @property
    def at_once(self) -> int:
        return self.judge.spec.limits.concurrency

    def items(self) -> Sequence[AnswerPair]:
        return self.pairs

    def question_of(self, item: AnswerPair) -> str:
        return item.question_id

    async def do(self, item: AnswerPair, asked: Asked) -> None:
        caller = ModelCaller(asked.models[_JUDGE], self.judge.prompts, self.judge.spec.sampling, seed=0)
        shares = list[float | None]()
        try:
            for messages, chosen in zip(self._messages(item), (_IN_ORDER, _EXCHANGED), strict=True):
                said: Judgement[tuple[int, int] | Literal["none"]] = await caller.judgement(
                    item.question_id,
                    messages,
                    0,
                    tag="pick",
                    wanted="the numbers 1 and 2, the better one first, or none",
                    read=partial(parse_pick, candidates=2),
                )
                shares.append(None if said.value is None else chosen[said.value])
                if said.unreadable is not None:
                    cause = said.cause or "unreadable"
                    asked.note("preference", question_id=item.question_id, cause=cause, message=said.unreadable)
        except ModelError as error:
            asked.failure(error, "preference", {"question_id": item.question_id})
        else:
            self.verdicts[item] = shares[0], shares[1]

    def _messages(self, item: AnswerPair) -> list[tuple[Message, ...]]:
        """In both orders."""
        answers = item[2:]
        return [render_preference(self.judge.prompts, item.question, each) for each in (answers, answers[::-1])]

    def described(self, count: int) -> str:
        return f"{counted(count, self.noun)}, each in both orders"

    async def expected(self, owed: Iterable[AnswerPair], *_: object, **__: object) -> list[ExpectedUsage]:
        prompts = [each for item in owed for each in self._messages(item)]
        return [ExpectedUsage.of_replies(prompts, lines=len(prompts), shortest=_SHORT_REPLY_TOKENS)]

    def of_condition(
        self, reference: Condition, other: Condition, questions: Sequence[str]
    ) -> tuple[Values, Preferences]:
        """The share of a preference that the other condition has, shape (1, questions), of several seeds the mean; nan
        without a judgement. And what was counted."""
        values, counts, right = np.full((1, len(questions)), np.nan), Counter[str](), list[bool]()
        for place, question in enumerate(questions):
            shares = list[float]()
            for one, two in _sides(reference, other, question):
                share, how = self._share(one, two)
                counts.update(how)
                if share is None:
                    continue
                counts[_COUNTED[share]] += 1
                shares.append(share)
                sides = [label_cover_em(each.answer or "", each.golden_answers) for each in (one, two)]
                right += [share == sides[1]] * ("by_rule" not in how and sides[0] != sides[1])
            if shares:
                values[0, place] = sum(shares) / len(shares)
        agrees = share_of(sum(right), len(right))
        return values, Preferences(judge=self.judge.spec.name, agrees_with_gold=agrees, **counts)

    def _share(self, one: Prediction, two: Prediction) -> tuple[float | None, list[str]]:
        """What the second has of a preference, None without a judgement; and as what it counts besides."""
        pair = _asked_about(one, two)
        if pair is None:
            return _TIE if one.answer == two.answer else float(one.answer is None), ["by_rule"]
        first, second = self.verdicts.get(pair, (None, None))
        if first is None or second is None:
            return None, ["unjudged"] + ["failed"] * (pair not in self.verdicts)
        if first != second:
            return _TIE, ["turned"] * (_TIE not in (first, second))
        return first if pair.first == one.answer else 1 - first, []


def _sides(one: Condition, other: Condition, question: str) -> Iterator[tuple[Prediction, Prediction]]:
    """Of a question under each seed; one with that of the same place, the fewer ones again."""
    for seed in range(max(len(one.seeds), len(other.seeds))):
        ours, theirs = (each.seeds[seed % len(each.seeds)].predictions[question] for each in (one, other))
        yield ours, theirs


def _asked_about(one: Prediction, two: Prediction) -> AnswerPair | None:
    """None where nothing is to be asked: an answer is better than none, and equal ones are a tie."""
    if one.answer is None or two.answer is None or one.answer == two.answer:
        return None
    return AnswerPair(one.question_id, one.question, *sorted((one.answer, two.answer)))


async def judge_pairs(
    conditions: Sequence[Condition], questions: Sequence[str], judge: PairwiseJudge, out: Path, watcher: Watcher
) -> PairwiseJudgements:
    """Have the first condition's answers judged beside those of each other, with journal and failures in `out`.

    Raises InputError where the judge cannot be asked, RunStopped where a cap or a lost endpoint ended it,
    KeyboardInterrupt where Ctrl-C did: answers are kept, and the same call goes on.
    """
    check_prices(watcher.say, judge.spec, given=judge.prices, capped=judge.budget.caps.cost is not None)
    reference, *others = conditions
    sides = [each for other in others for question in questions for each in _sides(reference, other, question)]
    work = PairwiseJudgements([*dict.fromkeys(pair for each in sides if (pair := _asked_about(*each)))], judge)
    async with AsyncExitStack() as opened:
        roles = {_JUDGE: Role(judge.spec, LazyModel(judge.spec, opened, watcher.say, judge.model))}
        with claimed(out, flag="--out"):
            async with open_run(out, roles, watcher, judge.budget) as run:
                await run.complete(work, work)
            return replace(work, cost_usd=run.models.cost)
