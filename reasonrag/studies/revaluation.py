"""Values a sample of pairs again: continues both sides anew, with draws that no search has used."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import statistics
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import orjson
from pydantic import BaseModel

from mcts import shortest_path_reward
from mcts.search import STRIDE
from preference import (
    Candidate,
    RolloutNode,
    RolloutRecord,
)
from preference.statistics import (
    LABEL_LEVEL,
    Bin,
    MarginCheck,
    Share,
    SignAgreement,
    reliability,
    share_of,
    sign_agreement,
    sign_agreement_by,
)
from reasonrag.agent.agent import Agent, AgentStep, State
from reasonrag.agent.model_calls import Spending
from reasonrag.agent.outcomes import AnswerValuer, OutcomeRule, counts, outcome_of, with_value
from reasonrag.concurrency import together
from reasonrag.data.questions import AnswerStyle, Question
from reasonrag.errors import InputError, ModelError, RetrievalError
from reasonrag.files import FAILURES, JOURNAL
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.journal import open_journal
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.retrieval.retriever import Retriever, corpus_language
from reasonrag.run.consent import get_consent, needs_consent
from reasonrag.run.failures import FailureLog
from reasonrag.run.models import Models
from reasonrag.run.session import Session
from reasonrag.run_config import RecordedRecipe
from reasonrag.studies.from_settings import RunParts

PLACE, REPORT = "calibration", "report.json"
FRESH = 10**9
"""First number of fresh continuations, plus STRIDE for each step above them: as in a search, so that no two share a
draw, but beyond every search. Fresh judgements of an answer are numbered from here on, too."""


class RevaluedPair(BaseModel):
    """One pair of the sample: its label, and the mean outcomes of its fresh continuations."""

    question_id: str
    chosen_id: int
    rejected_id: int
    action_type: str
    rejected_type: str = ""
    layer: int
    confidence: float | None
    """None where labels have none, as those of a judge."""
    one_draw: bool = False
    margin: float
    fresh_margin: float | None
    """Divided by alpha**layer if the label's margin is; null if a side has no valid fresh continuation."""
    chosen_fresh: float | None
    rejected_fresh: float | None
    """Mean discounted outcome."""
    chosen_outcome: float | None = None
    rejected_outcome: float | None = None
    """Mean outcome, undiscounted."""


class Disagreement(BaseModel):
    """How often two models disagree on which step is better: the one that continued in the run, and another one."""

    label_model: str
    fresh_model: str
    disagree: Share
    """Share of the pairs that are not tied by the other model."""
    disagree_by_action_type: dict[str, Share]


class Revaluation(BaseModel):
    """Result of fresh continuations of a sample of pairs."""

    model: str
    """The model that continued."""
    k: int
    seed: int
    min_confidence: float
    exportable: int
    """Number of pairs that `pairs` would export at this `min_confidence`; the sample was drawn from them."""
    pairs: int
    unvalued: int
    """Pairs of the sample of which a side has no valid fresh continuation."""
    failures_by_cause: dict[str, int]
    """Steps whose continuation failed, by cause; their pairs are unvalued."""
    failed_attempts: int
    """Failed attempts of requests; most were repeated with success."""
    confidence_level: float
    """Level of the (Wilson) intervals."""
    confirmed: SignAgreement
    confirmed_by_action_type: dict[str, SignAgreement]
    confirmed_by_layer: dict[str, SignAgreement]
    confirmed_by_draws: dict[str, SignAgreement]
    """`one`: pairs with the tag `one_draw`; `more`: the others."""
    disagreement: Disagreement | None
    """Null if the model that continued in the run continues again."""
    mean_margin: float | None
    mean_fresh_margin: float | None
    """Smaller than `mean_margin` by the winner's curse: pairs were chosen by the label's margin."""
    reliability: list[Bin]
    calls: int
    """Completions of this model in all calibrations of the run so far."""
    session_calls: int
    """Completions requested in this session."""
    cost_usd: float | None
    """Cost of all of them."""
    refused_parameters: dict[str, list[str]] = {}
    """Request parameters that an endpoint refused in this session, by name of the model."""
    sample: list[RevaluedPair]


@dataclass(frozen=True)
class SampledPair:
    """A pair of a tree."""

    rollout: RolloutRecord
    candidate: Candidate

    @property
    def chosen(self) -> RolloutNode:
        return self.rollout.nodes[self.candidate.chosen.id]

    @property
    def rejected(self) -> RolloutNode:
        return self.rollout.nodes[self.candidate.rejected.id]


@dataclass(frozen=True)
class PairSample:
    """A random sample of pairs: those with the smallest lots, ordered by lot. seen: pairs that it was drawn from.
    min_confidence: of these."""

    pairs: list[SampledPair]
    seen: int
    seed: int
    min_confidence: float


def sample_pairs(stream: Iterable[SampledPair], size: int, *, seed: int, min_confidence: float) -> PairSample:
    """The sample of a stream of pairs, of which only those are held in memory.

    A lot depends on the seed and on the pair, not on the others: a larger sample holds all of a smaller one, and the
    order of the file says nothing.
    """

    def lot(pair: SampledPair) -> bytes:
        named = orjson.dumps([seed, pair.rollout.question_id, pair.chosen.id, pair.rejected.id])
        return hashlib.sha256(named).digest()

    seen = itertools.count()
    counted = (pair for pair, _ in zip(stream, seen))  # noqa: B905 - the count has no end
    drawn = heapq.nsmallest(max(1, size), counted, key=lot)[:size]  # of none it would read nothing
    return PairSample(drawn, next(seen), seed, min_confidence)


@dataclass(frozen=True)
class _Side:
    """A step to be valued again.

    state: what the step leads to; None for an answer. answer: one that a judge has valued and will judge again; the
    value of others is known. steps: edges from the root down to the step.
    """

    rollout: RolloutRecord
    node: RolloutNode
    state: State | None
    answer: AgentStep | None
    steps: int


_Sides = dict[tuple[str, int], _Side]


class _Fresh(NamedTuple):
    """Mean discounted outcome, and the same undiscounted; None if no continuation or judgement counts."""

    value: float | None = None
    outcome: float | None = None


_Values = dict[tuple[str, int], _Fresh]


async def revalue(
    parts: RunParts,
    sample: PairSample,
    *,
    k: int,
    folder: Path,
    chat_model: ChatModel | None,
    watcher: Watcher,
) -> Revaluation:
    """Value both sides of the pairs by `k` continuations of each, from the journal in `folder` or from the model, which
    is opened only if it has to be asked.

    chat_model: asked instead of opening the one of the parts. Raises InputError where passages or models are others,
    RunStopped where a cap or a lost endpoint ended it, KeyboardInterrupt where Ctrl-C did.
    """
    spec, pairs = parts.model, sample.pairs
    async with AsyncExitStack() as opened:
        journal = await opened.enter_async_context(open_journal(folder / JOURNAL, say=watcher.say))
        models = Models.journaled(journal, parts.caps, {"model": (spec, None)})
        calls_before = models.spent.calls
        agent = parts.agent_of(models.main)
        sides = await _sides_of(agent, pairs, judged=parts.rule.judged)
        failures = opened.enter_context(FailureLog(folder / FAILURES))
        continuations = _FreshContinuations(agent, k, failures, _FreshOutcomes(parts.rule, parts.recipe))
        values, owed = await continuations.recorded(sides)
        if owed:
            models = Models.journaled(
                journal, parts.caps, {"model": (spec, chat_model or spec.open(opened, say=watcher.say))}
            )
            if needs_consent([spec], parts.caps, yes=parts.yes):
                await models.check()
                expected = continuations.expected(owed, begun=journal.questions)
                work = f"{counted(len(owed), 'step')} x {counted(k, 'continuation')}"
                get_consent(work, [(spec, expected)], watcher, models)
            values |= await continuations.ask(models, owed, watcher)
    return _summary(
        [_revalued(each, values) for each in pairs],
        failures,
        label_model=parts.label_model,
        model=spec.name,
        k=k,
        seed=sample.seed,
        min_confidence=sample.min_confidence,
        exportable=sample.seen,
        calls=models.spent.calls,
        session_calls=models.spent.calls - calls_before,
        cost_usd=models.cost,
        refused_parameters=models.refused_parameters,
    )


async def _sides_of(agent: Agent, pairs: Iterable[SampledPair], *, judged: bool) -> _Sides:
    """Every step of the pairs once, with its state rebuilt. Raises InputError if the index finds other passages.

    judged: whether a judge values answers.
    """
    sides: _Sides = {}
    for pair in pairs:
        for node in (pair.chosen, pair.rejected):
            if (key := (pair.rollout.question_id, node.id)) not in sides:
                sides[key] = await _side(agent, pair.rollout, node, judged=judged)
    return sides


async def _side(agent: Agent, rollout: RolloutRecord, node: RolloutNode, *, judged: bool) -> _Side:
    """A step with its state: the replies on its path are the thoughts, its queries are searched again."""
    path = [node]
    while path[-1].parent_id:
        path.append(rollout.nodes[path[-1].parent_id])
    state = agent.start(_question_of(agent, rollout))
    for each in reversed(path):
        step = AgentStep(
            state=state,
            prompt=tuple(each.prompt or ()),
            response=each.response or "",
            action_type=each.action_type,
            content=each.content,
            terminal=each.terminal,
        )
        if each.terminal:  # it is the last one
            asked = judged and each.action_type == "answer"
            return _Side(rollout, node, None, step if asked else None, steps=len(path))
        state = await agent.next_state(step)
        _check_passages(agent.retriever, rollout, each, state)
    return _Side(rollout, node, state, None, steps=len(path))


def _question_of(agent: Agent, rollout: RolloutRecord) -> Question:
    """The question of a tree, whose first prompt says which style of answers it wanted."""
    found = Question(
        id=rollout.question_id,
        question=rollout.question,
        golden_answers=rollout.golden_answers,
        metadata={"rubric": rollout.rubric, "hops": rollout.hops},
    )
    asked = next((tuple(node.prompt) for node in rollout.nodes[1:] if node.prompt), None)
    styled = (
        found.model_copy(update={"metadata": {**found.metadata, "style": style}}) for style in get_args(AnswerStyle)
    )
    return next((each for each in (found, *styled) if agent.prompt_of(agent.start(each)) == asked), found)


def _check_passages(retriever: Retriever, rollout: RolloutRecord, query: RolloutNode, state: State) -> None:
    """Raises InputError if a query now finds other passages than in the run."""
    read = next((rollout.nodes[each].passages for each in query.children_ids), None)
    found = [passage.id for passage in state.passages]
    if read is not None and found != (recorded := [passage.id for passage in read]):
        raise InputError(
            f"question {rollout.question_id}, node {query.id}: the index {retriever.identity} finds {found}, the run "
            f"had read {recorded}. Give the index that the run was made with: --index, or --corpus"
        )


class _FreshContinuations:
    """Fresh continuations of steps, from the journal or from a model."""

    def __init__(self, agent: Agent, k: int, failures: FailureLog, outcomes: _FreshOutcomes) -> None:
        self._failures = failures
        self._agent = agent
        self._k = k
        self._outcomes = outcomes

    def expected(self, owed: _Sides, *, begun: Collection[str]) -> ExpectedUsage:
        """Usage to come, by the lengths of the run's own continuations of these steps; high: all take the whole step
        budget. begun: questions of which the journal has something, which the low end leaves out."""
        usages = [self._usage(side) for side in owed.values()]
        calls, most = (sum(self._k * each(side) for side in owed.values()) for each in (self._length, self._most_steps))
        fresh = sum(question_id not in begun for question_id, _ in owed)
        return ExpectedUsage.rehearsed(usages, scale=max(1.0, most / calls), thoughts=0).times(fresh, len(owed))

    def _usage(self, side: _Side) -> Tokens:
        """Of the fresh continuations of a step, the first replies of which come in one request."""
        made, steps = side.rollout.usage, self._length(side)
        calls = self._k * steps
        requests = calls if side.answer else calls - self._k + 1
        prompt, reply = made.prompt_tokens / max(1, made.requests), made.completion_tokens / max(1, made.calls)
        return Tokens(round(calls), round(requests), round(requests * prompt), round(calls * reply))

    def _length(self, side: _Side) -> float:
        """Completions of one continuation, as in the run; a judgement of its answer is one more."""
        if not side.state:
            return 1.0
        ends = [end.steps for end in side.node.rollouts]
        steps = statistics.mean(ends) - side.steps if ends else 1.0
        return max(1.0, steps) + self._outcomes.ask_model

    def _most_steps(self, side: _Side) -> int:
        if not side.state:
            return int(self._outcomes.ask_model)
        return max(1, self._agent.most_steps(side.state.question) - side.steps) + self._outcomes.ask_model

    async def recorded(self, sides: _Sides) -> tuple[_Values, _Sides]:
        """Values of the sides that the journal answers, and the other sides."""
        values: _Values = {}
        for key, side in sides.items():
            try:
                values[key] = await self._mean(self._agent, side)
            except (ModelError, RetrievalError):  # not recorded, or to be met again when it is asked
                continue
        return values, {key: side for key, side in sides.items() if key not in values}

    async def ask(self, models: Models, sides: _Sides, watcher: Watcher) -> _Values:
        """The value of every side; None if its continuation failed. Raises RunStopped, KeyboardInterrupt for Ctrl-C."""
        values: _Values = {}
        session = Session(
            models, watcher, self._failures.attempt, how_far=lambda: f"{len(values):,} of {len(sides):,} steps"
        )
        await models.check()

        async def value(queued: tuple[int, tuple[str, int]]) -> None:
            position, key = queued
            own = replace(self._agent, model=models.main, priority=position, spending=Spending())
            try:
                values[key] = await self._mean(own, sides[key])
            except (ModelError, RetrievalError) as error:
                self._failures.give_up("step", error, question_id=key[0], node_id=key[1])
                values[key] = _Fresh()

        await session.run_or_raise(enumerate(sides), value, at_once=len(sides))
        return values

    async def _mean(self, agent: Agent, side: _Side) -> _Fresh:
        """Mean discounted outcome over the continuations that are plain samples throughout, as in the labels; for an
        answer, over its judgements."""
        ends = await self._ends(agent, side)
        valid = [(outcome, steps) for outcome, steps in ends if outcome is not None]
        if not valid:
            return _Fresh()
        alpha = side.rollout.recipe.alpha
        rewards = [shortest_path_reward(outcome, steps=steps, alpha=alpha) for outcome, steps in valid]
        return _Fresh(statistics.mean(rewards), statistics.mean(outcome for outcome, _ in valid))

    async def _ends(self, agent: Agent, side: _Side) -> list[tuple[float | None, int]]:
        """Outcome and number of steps from the root, for each end; None where it has none."""
        if side.answer is not None:
            return [(each, side.steps) for each in await self._outcomes.again(agent, side.answer, self._k)]
        if side.state is None:
            return [(side.node.outcome.value if side.node.outcome else 0.0, side.steps)]
        first = FRESH + STRIDE * side.steps
        paths = await agent.continue_from(side.state, range(first, first + self._k))
        plain = [path for path in paths if self._outcomes.plain(path)]
        outcomes = await together(*(self._outcomes.of(agent, path[-1]) for path in plain))
        return [(outcome, side.steps + len(path)) for outcome, path in zip(outcomes, plain, strict=True)]


class _FreshOutcomes:
    """Outcomes of answers; judges are asked with draws that the run has not used.

    One valuer for each question and draw, whichever step is valued: two steps can come to the same answer.
    """

    def __init__(self, rule: OutcomeRule, recipe: RecordedRecipe) -> None:
        self._rule = rule
        self._recipe = recipe
        self._valuers: dict[tuple[str, int], AnswerValuer | None] = {}

    @property
    def ask_model(self) -> bool:
        return self._rule.asks_model

    def plain(self, path: Sequence[AgentStep]) -> bool:
        """Whether a continuation counts as one, as in the labels."""
        return all(step.plain or (step.repaired and self._recipe.repairs_count) for step in path)

    async def of(self, agent: Agent, end: AgentStep, draw: int = 0) -> float | None:
        """Outcome of a path's last step; None if it has none, as in the labels."""
        if not counts(end, unreadable=self._recipe.unreadable_replies, forced_answers=self._recipe.forced_answers):
            return None
        question = end.state.question
        if (question.id, draw) not in self._valuers:
            valuer = self._rule.valuer(question, gold=bool(self._recipe.judge_sees_gold), sample=FRESH + draw)
            self._valuers[question.id, draw] = valuer
        judged = await with_value(end, self._valuers[question.id, draw], agent)
        return outcome_of(judged, self._rule.name, language=corpus_language(agent.retriever))

    async def again(self, agent: Agent, answer: AgentStep, times: int) -> list[float | None]:
        """Outcomes of `times` judgements of one answer."""
        return await together(*(self.of(agent, answer, draw) for draw in range(times)))


def _revalued(pair: SampledPair, values: _Values) -> RevaluedPair:
    candidate = pair.candidate
    fresh = [values[pair.rollout.question_id, node.id] for node in (pair.chosen, pair.rejected)]
    chosen, rejected = (each.value for each in fresh)
    scale = pair.rollout.recipe.alpha**candidate.layer if pair.rollout.recipe.margin_by_layer else 1.0
    return RevaluedPair(
        question_id=pair.rollout.question_id,
        chosen_id=pair.chosen.id,
        rejected_id=pair.rejected.id,
        action_type=str(pair.chosen.action_type),
        rejected_type=str(pair.rejected.action_type),
        layer=candidate.layer,
        confidence=candidate.confidence,
        one_draw="one_draw" in candidate.tags,
        margin=candidate.margin,
        fresh_margin=None if chosen is None or rejected is None else (chosen - rejected) / scale,
        chosen_fresh=chosen,
        rejected_fresh=rejected,
        chosen_outcome=fresh[0].outcome,
        rejected_outcome=fresh[1].outcome,
    )


def _summary(
    sample: list[RevaluedPair], failures: FailureLog, *, label_model: str, model: str, **known: Any
) -> Revaluation:
    """known: the fields that follow neither from the pairs nor from the failures."""
    decided = [
        MarginCheck(_types(each), each.layer, each.confidence, each.margin, each.fresh_margin, each.one_draw)
        for each in sample
        if each.fresh_margin is not None
    ]
    return Revaluation(
        **known,
        model=model,
        disagreement=None if model == label_model else _disagreement(decided, label_model, model),
        pairs=len(sample),
        unvalued=len(sample) - len(decided),
        failures_by_cause=dict(failures.given_up.most_common()),
        failed_attempts=failures.attempts,
        confidence_level=LABEL_LEVEL,
        confirmed=sign_agreement(decided),
        confirmed_by_action_type=sign_agreement_by(decided, lambda each: each.action_type),
        confirmed_by_layer=sign_agreement_by(decided, lambda each: str(each.layer)),
        confirmed_by_draws=sign_agreement_by(decided, lambda each: "one" if each.one_draw else "more"),
        mean_margin=statistics.mean(each.margin for each in decided) if decided else None,
        mean_fresh_margin=statistics.mean(each.fresh_margin for each in decided) if decided else None,
        reliability=reliability(decided),
        sample=sample,
    )


def _types(pair: RevaluedPair) -> str:
    """`query`; `answer over query` where the types differ."""
    one, other = pair.action_type, pair.rejected_type
    return one if other in ("", one) else f"{one} over {other}"


def _disagreement(pairs: list[MarginCheck], label_model: str, fresh_model: str) -> Disagreement:
    def disagree(among: Iterable[MarginCheck]) -> Share:
        decided = [each for each in among if not each.tied]
        return share_of(sum(not each.confirmed for each in decided), len(decided))

    types = sorted({each.action_type for each in pairs})
    return Disagreement(
        label_model=label_model,
        fresh_model=fresh_model,
        disagree=disagree(pairs),
        disagree_by_action_type={name: disagree(each for each in pairs if each.action_type == name) for name in types},
    )
