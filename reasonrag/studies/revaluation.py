"""Values a sample of pairs again: continues both sides anew, with draws that no search has used."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import orjson
from pydantic import BaseModel

from mcts import shortest_path_reward
from mcts.search import STRIDE
from preference import Candidate, RolloutNode, RolloutRecord
from preference.best_path import steps_to
from preference.margin_and_confidence import TOLERANCE
from preference.statistics import LABEL_LEVEL, Bin, SignAgreement, reliability, sign_agreement
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.outcomes import AnswerValuer, OutcomeRule, counts, outcome_of, with_value
from reasonrag.agent.state import State
from reasonrag.concurrency import together
from reasonrag.data.questions import AnswerStyle, Question
from reasonrag.errors import InputError, ModelError, RetrievalError
from reasonrag.exploration.explorer import READER
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import Watcher
from reasonrag.rendering import Part, Table, agreement_text, dollars_or_unknown
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import needs_consent
from reasonrag.run.engine import Asked, Budget, Role, open_run
from reasonrag.run.failures import FailureLog
from reasonrag.run_config import RecordedRecipe

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

    @property
    def tied(self) -> bool:
        return abs(self.fresh_margin or 0.0) <= TOLERANCE

    @property
    def confirmed(self) -> bool:
        return (self.fresh_margin or 0.0) > TOLERANCE


class Revaluation(BaseModel):
    """Result of fresh continuations of a sample of pairs."""

    model: str
    """The model that continued."""
    k: int
    exportable: int
    """Number of pairs that `pairs` would export at the `min_confidence` of the settings; the sample is of them."""
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

    def shown(self) -> Iterator[Part]:
        yield Table(f"{self.k:,} fresh continuations per step  by {self.model}", self._rows())
        claimed = [each for each in self.reliability if each.mean_confidence is not None]  # others have no pair
        if any(each.confidence is None for each in self.sample):
            yield "these labels have no confidence"
        elif claimed:
            rows = [(f"{each.low:.1f} to {each.high:.1f}", agreement_text(each)) for each in claimed]
            yield Table("claimed confidence, share right of all", rows)

    def _rows(self) -> Iterator[tuple[str, object]]:
        yield "pairs", f"{self.pairs:,} of {self.exportable:,}, {self.unvalued:,} could not be valued"
        yield "failure causes", self.failures_by_cause
        yield "labels", self.confirmed
        yield "margin, label", self.mean_margin
        yield "margin, fresh", self.mean_fresh_margin
        yield "completions", f"{self.calls:,}, {self.session_calls:,} of them new"
        yield "cost", dollars_or_unknown(self.cost_usd)


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
    """A random sample of pairs: those with the smallest lots, ordered by lot. seen: pairs that it was drawn from."""

    pairs: list[SampledPair]
    seen: int


def sample_pairs(stream: Iterable[SampledPair], size: int, *, seed: int) -> PairSample:
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
    return PairSample(drawn, next(seen))


class _Side(NamedTuple):
    """A step to be valued again."""

    rollout: RolloutRecord
    node: RolloutNode

    @property
    def steps(self) -> int:
        """Edges from the root down to the step."""
        return (self.node.layer or 0) + 1


_Key = tuple[str, int]
"""Of a side: its question and its node."""


class _Fresh(NamedTuple):
    """Mean discounted outcome, and the same undiscounted; None if no continuation or judgement counts."""

    value: float | None = None
    outcome: float | None = None


_MODEL = "model"


@dataclass(frozen=True)
class Continuing:
    """What continues the steps of a run.

    model: the one that continues now. chat_model: asked instead of opening it. agent_of: the run's agent, with some
    model, and a reader's. rule, recipe: how answers are valued, and which count. reader: if another model reads.
    """

    model: ModelSpec
    chat_model: ChatModel | None
    agent_of: Callable[[ChatModel, ChatModel | None], Agent]
    rule: OutcomeRule
    recipe: RecordedRecipe
    reader: ModelSpec | None = None


async def revalue(
    by: Continuing, sample: PairSample, k: int, folder: Path, budget: Budget, *, watcher: Watcher
) -> Revaluation:
    """Value both sides of the pairs by `k` continuations of each, from the journal in `folder` or from the model, which
    is opened only if it has to be asked.

    Raises InputError where passages or models are others, RunStopped where a cap or a lost endpoint ended it,
    KeyboardInterrupt where Ctrl-C did.
    """
    pairs = sample.pairs
    async with AsyncExitStack() as opened:

        async def open_model(spec: ModelSpec, given: ChatModel | None = None) -> ChatModel:
            if needs_consent([spec], budget.caps, yes=budget.yes):
                raise InputError(f"{spec.name} costs money: give --max-cost DOLLARS, or --yes")
            return given or spec.open(opened, say=watcher.say)

        roles = {_MODEL: Role(by.model, partial(open_model, by.model, by.chat_model))}
        if by.reader:
            roles[READER] = Role(by.reader, partial(open_model, by.reader))
        run = await opened.enter_async_context(open_run(folder, roles, watcher, budget))
        sides = [_Side(pair.rollout, node) for pair in pairs for node in (pair.chosen, pair.rejected)]
        work = _FreshValues(by.agent_of(run.models.main, run.models.by_role.get(READER)), k, sides, by)
        await run.complete(work)
    return _summary(
        [_revalued(each, work.values) for each in pairs],
        run.failures,
        model=by.model.name,
        k=k,
        exportable=sample.seen,
        calls=run.models.spent.calls,
        session_calls=run.session.tally.calls,
        cost_usd=run.models.cost,
        refused_parameters=run.refused,
        failed_attempts=run.session.tally.failed_calls,
    )


async def _after(agent: Agent, side: _Side) -> State | AgentStep:
    """The state that a step leads to, or the answer: the replies on its path are the thoughts, its queries are searched
    again, and a reader's words are those of the run. Raises InputError if the index finds other passages."""
    rollout, state = side.rollout, agent.start(_question_of(agent, side.rollout))
    for each in steps_to(rollout, side.node):
        step = AgentStep(
            state=state,
            prompt=tuple(each.prompt or ()),
            response=each.response or "",
            action_type=each.action_type,
            content=each.content,
            terminal=each.terminal,
        )
        if each.terminal:  # it is the last one
            return step
        said = rollout.nodes[each.children_ids[0]].observation if each.children_ids else None
        state = await agent.next_state(step, said)
        _check_passages(agent.retriever, rollout, each, state)
    return state


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
            f"had read {recorded}. Restore the index that the run was made with"
        )


class _FreshValues:
    """Fresh continuations of steps, as a `Work`; judges are asked with draws that the run has not used. values: of the
    sides that are done, and of those whose value is known: answers that no judge values."""

    noun = "step"

    def __init__(self, agent: Agent, k: int, sides: Sequence[_Side], by: Continuing) -> None:
        self._agent, self._k, self._rule, self._recipe = agent, k, by.rule, by.recipe
        self._sides, self.values = dict[_Key, _Side](), dict[_Key, _Fresh]()
        for side in sides:
            key, node = (side.rollout.question_id, side.node.id), side.node
            if not node.terminal or (by.rule.judged and node.action_type == "answer"):
                self._sides[key] = side
            else:
                self.values[key] = _mean(side, [(node.outcome.value if node.outcome else 0.0, side.steps)])
        self.at_once = max(1, len(self._sides))
        self._valuers: dict[tuple[str, int], AnswerValuer | None] = {}
        """One for each question and draw, whichever step is valued: two steps can come to the same answer."""

    def items(self) -> Iterable[_Key]:
        return self._sides

    def question_of(self, item: _Key) -> str:
        return item[0]

    async def do(self, item: _Key, asked: Asked) -> None:
        agent = self._agent.anew(asked.models[_MODEL], asked.models.get(READER))
        try:
            self.values[item] = _mean(self._sides[item], await self._ends(agent, self._sides[item]))
        except (ModelError, RetrievalError) as error:
            asked.failure(error, "step", {"question_id": item[0], "node_id": item[1]})
            self.values[item] = _Fresh()

    async def _ends(self, agent: Agent, side: _Side) -> list[tuple[float | None, int]]:
        """Outcome and number of steps from the root, for each end; None where it has none. Only continuations count
        that are plain samples throughout, as in the labels; an answer has an end for each judgement."""
        after = await _after(agent, side)
        if isinstance(after, AgentStep):
            judged = await together(*(self._outcome(agent, after, draw) for draw in range(self._k)))
            return [(outcome, side.steps) for outcome in judged]
        first = FRESH + STRIDE * side.steps
        paths = await agent.continue_from(after, range(first, first + self._k))
        repaired = self._recipe.repairs_count
        plain = [path for path in paths if all(step.plain or (step.repaired and repaired) for step in path)]
        outcomes = await together(*(self._outcome(agent, path[-1], 0) for path in plain))
        return [(outcome, side.steps + len(path)) for outcome, path in zip(outcomes, plain, strict=True)]

    async def _outcome(self, agent: Agent, end: AgentStep, draw: int) -> float | None:
        """Outcome of a path's last step; None if it has none, as in the labels. draw: of the judgement."""
        if not counts(end, unreadable=self._recipe.unreadable_replies, forced_answers=self._recipe.forced_answers):
            return None
        question = end.state.question
        if (question.id, draw) not in self._valuers:
            valuer = self._rule.valuer(question, gold=bool(self._recipe.judge_sees_gold), sample=FRESH + draw)
            self._valuers[question.id, draw] = valuer
        judged = await with_value(end, self._valuers[question.id, draw], agent)
        return outcome_of(judged, self._rule.name, language=agent.language)


def _mean(side: _Side, ends: Iterable[tuple[float | None, int]]) -> _Fresh:
    """Mean discounted outcome over the ends that have one."""
    valid = [(outcome, steps) for outcome, steps in ends if outcome is not None]
    if not valid:
        return _Fresh()
    alpha = side.rollout.recipe.alpha
    rewards = [shortest_path_reward(outcome, steps=steps, alpha=alpha) for outcome, steps in valid]
    return _Fresh(statistics.mean(rewards), statistics.mean(outcome for outcome, _ in valid))


def _revalued(pair: SampledPair, values: Mapping[_Key, _Fresh]) -> RevaluedPair:
    candidate = pair.candidate
    fresh = [values[pair.rollout.question_id, node.id] for node in (pair.chosen, pair.rejected)]
    chosen, rejected = (each.value for each in fresh)
    scale = pair.rollout.recipe.alpha**candidate.state.layer if pair.rollout.recipe.margin_by_layer else 1.0
    return RevaluedPair(
        question_id=pair.rollout.question_id,
        chosen_id=pair.chosen.id,
        rejected_id=pair.rejected.id,
        action_type=str(pair.chosen.action_type),
        rejected_type=str(pair.rejected.action_type),
        layer=candidate.state.layer,
        confidence=candidate.pair.confidence,
        one_draw="one_draw" in candidate.pair.tags,
        margin=candidate.margin,
        fresh_margin=None if chosen is None or rejected is None else (chosen - rejected) / scale,
        chosen_fresh=chosen,
        rejected_fresh=rejected,
        chosen_outcome=fresh[0].outcome,
        rejected_outcome=fresh[1].outcome,
    )


def _summary(sample: list[RevaluedPair], failures: FailureLog, **known: Any) -> Revaluation:
    """known: the fields that follow neither from the pairs nor from the failures."""
    decided = [each for each in sample if each.fresh_margin is not None]
    return Revaluation(
        **known,
        pairs=len(sample),
        unvalued=len(sample) - len(decided),
        failures_by_cause=dict(failures.given_up.most_common()),
        confidence_level=LABEL_LEVEL,
        confirmed=sign_agreement(decided),
        mean_margin=statistics.mean(each.margin for each in decided) if decided else None,
        mean_fresh_margin=statistics.mean(each.fresh_margin or 0.0 for each in decided) if decided else None,
        reliability=reliability(decided),
        sample=sample,
    )
