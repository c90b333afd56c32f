"""`reasonrag calibrate`: how far the labels of a run can be trusted, by itself and by fresh continuations.

Holds the reward rules of a run against each other for nothing. With `revalue` it draws pairs that `pairs` would export
and values both sides once more, by continuations that no search has used. Those answers have a journal of their own
below the run, so that the same calibration asks nothing twice. What agreement is, is decided in `preference.agreement`.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from mcts import shortest_path_reward
from mcts.search import STRIDE
from preference import (
    Candidate,
    MalformedRolloutsError,
    PairingRules,
    RolloutNode,
    RolloutRecord,
    candidates,
    read_rollouts,
)
from preference.agreement import (
    CONFIDENCE_LEVEL,
    Bin,
    Revalued,
    RuleAgreement,
    RuleTally,
    SignAgreement,
    reliability,
    sign_agreement,
    sign_agreement_by,
)
from preference.exporting import replacing
from reasonrag.agent import Agent, AgentStep, Spending, State
from reasonrag.chat import ChatModel
from reasonrag.concurrency import run_to_end, together
from reasonrag.errors import InputError, Interrupted, ModelError, RetrievalError, RunStopped
from reasonrag.exploration import outcome_of
from reasonrag.generation import (
    Policy,
    check_prices,
    make_agent,
    open_model,
    open_retriever,
    open_value_model,
    owned,
    shown_urls,
    teacher_policy,
    value_model_name,
    value_policy,
)
from reasonrag.journal import JournaledModel, open_journal
from reasonrag.ledger import Caps, Ledger, Tokens
from reasonrag.models import Models
from reasonrag.prompting import Prompts, load_prompts
from reasonrag.questions import Question
from reasonrag.retrieval import Retriever
from reasonrag.runs import CONFIG, JOURNAL, ROLLOUTS, only_writer, read_config
from reasonrag.session import SilentWatcher, Watcher
from reasonrag.settings import CalibrateSettings, GenerateSettings, resolve
from reasonrag.summaries import versions

PLACE, REPORT = "calibration", "report.json"
FRESH = 10**9
"""Fresh continuations are numbered from here on, further by STRIDE for each step above them: as in a search, so that no
two have a draw in common, but beyond every search."""
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


class RevaluedPair(BaseModel):
    """One pair of the sample: its label, and the means of the fresh continuations."""

    question_id: str
    chosen_id: int
    rejected_id: int
    action_type: str
    layer: int
    confidence: float
    margin: float
    fresh_margin: float | None
    """Divided by alpha**layer where the label's is; null where a side has no fresh continuation that counts."""
    chosen_fresh: float | None
    rejected_fresh: float | None
    """Mean discounted outcome."""


class Revaluation(BaseModel):
    """What fresh continuations say of a sample of pairs."""

    model: str
    """Who continued."""
    k: int
    seed: int
    exportable: int
    """Pairs that `pairs` would export by its defaults, of which the sample was drawn."""
    pairs: int
    unvalued: int
    """Pairs of the sample with a side that has no fresh continuation that counts."""
    failures_by_cause: dict[str, int]
    """Steps whose continuations were given up, by cause; their pairs are unvalued."""
    failed_attempts: int
    """Of requests, most of them repeated with success."""
    confidence_level: float
    """Of the intervals (Wilson)."""
    confirmed: SignAgreement
    confirmed_by_action_type: dict[str, SignAgreement]
    confirmed_by_layer: dict[str, SignAgreement]
    mean_margin: float | None
    mean_fresh_margin: float | None
    """Smaller by the winner's curse: the label was chosen for its margin, the fresh one was not."""
    reliability: list[Bin]
    calls: int
    """Replies of this model to all calibrations of the run so far; the journal has them."""
    session_calls: int
    """Those that were asked for now."""
    cost_usd: float | None
    """Of all of them."""
    sample: list[RevaluedPair]


class Calibration(BaseModel):
    """How far the labels of a run can be trusted; the content of `report.json`."""

    run: str
    config_hash: str
    questions: int
    siblings: dict[str, int]
    """Compared, by the action type of the preferred one."""
    rules: list[RuleAgreement]
    rules_by_action_type: dict[str, list[RuleAgreement]]
    revaluation: Revaluation | None = None
    settings: dict[str, Any]
    """Resolved; addresses without users and passwords."""
    versions: dict[str, str]
    report: str


def calibrate(
    run: str | Path,
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Calibration:
    """Check the labels of `run`; the keyword arguments are the command's flags (`revalue` for `--revalue`).

    chat_model, retriever: used instead of what the run's settings would build. Raises InputError where the run cannot
    be read, or what it was made with is not there any more; RunStopped where a cap or a lost endpoint ended it,
    KeyboardInterrupt where Ctrl-C did. The same call then goes on.
    """
    settings = resolve(CalibrateSettings, "calibrate", flags)
    return run_to_end(_calibrate(Path(run), settings, chat_model, retriever, watcher or SilentWatcher()))


async def _calibrate(
    run: Path,
    settings: CalibrateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
) -> Calibration:
    if not (run / ROLLOUTS).is_file():
        raise InputError(f"there is no {run / ROLLOUTS}; give a run directory of reasonrag generate")
    config = read_config(run / CONFIG)
    tally, sample = RuleTally(), _Sample(settings.revalue, random.Random(settings.seed))
    questions = 0
    for rollout in _trees(run / ROLLOUTS):
        questions += 1
        tally.add(rollout)
        sample.add(each for each in candidates(rollout, PairingRules()) if each.dropped is None)
    found = Calibration(
        run=str(run),
        config_hash=str(config["config_hash"]),
        questions=questions,
        siblings=dict(tally.siblings),
        rules=tally.agreement(),
        rules_by_action_type={each: tally.agreement(each) for each in sorted(tally.siblings)},
        settings=settings.model_dump(mode="json") | {"base_url": shown_urls(settings.base_url)},
        versions=versions(),
        report=str(run / PLACE / REPORT),
    )
    if settings.revalue:
        revaluer = _Revaluer(run, config, settings, chat_model, retriever, watcher)
        revaluation = await revaluer.revalue(sample)
        found = found.model_copy(update={"revaluation": revaluation})
    try:
        (run / PLACE).mkdir(exist_ok=True)
        with replacing(run / PLACE / REPORT) as file:
            file.write(orjson.dumps(found.model_dump(), option=_INDENTED))
    except OSError as error:
        raise InputError(f"cannot write {run / PLACE / REPORT}: {error.strerror}") from error
    return found


def _trees(rollouts: Path) -> Iterator[RolloutRecord]:
    try:
        yield from (rollout for rollout in read_rollouts(rollouts) if rollout.error is None)
    except MalformedRolloutsError as error:
        raise InputError(
            f"{error}. If a run was stopped there, run the same generate command again: it mends the file"
        ) from error


class _Sample:
    """So many of the pairs that pass by, each with the same chance; only those are held in memory.

    Source: algorithm R, J. S. Vitter, Random sampling with a reservoir, ACM TOMS 11 (1985).
    """

    def __init__(self, size: int, dice: random.Random) -> None:
        self.pairs: list[Candidate] = []
        self.seen = 0
        self._size = size
        self._dice = dice

    def add(self, passing: Iterable[Candidate]) -> None:
        for each in passing:
            self.seen += 1
            if len(self.pairs) < self._size:
                self.pairs.append(each)
            elif (place := self._dice.randrange(self.seen)) < self._size:
                self.pairs[place] = each


# -- who continues ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Continuing:
    """The model that continues, as the run's settings and the flags say. recorded_as: in the journal; None: the run's
    teacher."""

    settings: GenerateSettings
    policy: Policy
    corpus: Path | None
    recorded_as: str | None

    def open(self) -> ChatModel:
        return open_model(self.settings) if self.recorded_as is None else open_value_model(self.settings)


def _who_continues(
    run: Path, config: dict[str, Any], given: CalibrateSettings, chat_model: ChatModel | None
) -> _Continuing:
    """Who continued in the run, unless another model is given."""
    saved, corpus = _saved_settings(run, config, given)
    teacher, student = config["decides_answers"]["model"], config["decides_answers"].get("value_model", {}).get("name")
    wanted = chat_model.name if chat_model else given.model or student or teacher
    prices = {"price_in": given.price_in, "price_out": given.price_out}
    if wanted == teacher:
        own = {"base_url": given.base_url, **prices}
        settings = saved.model_copy(update={"model": wanted} | {name: own[name] for name in own if own[name]})
        return _Continuing(settings, teacher_policy(settings, wanted), corpus, None)
    own = {"value_base_url": given.base_url, **{f"value_{name}": price for name, price in prices.items()}}
    kept = own if wanted != student else {name: each for name, each in own.items() if each}
    settings = saved.model_copy(update={"value_model": wanted} | kept)
    name = wanted if chat_model else value_model_name(settings)
    return _Continuing(settings, value_policy(settings, name), corpus, name)


def _saved_settings(
    run: Path, config: dict[str, Any], given: CalibrateSettings
) -> tuple[GenerateSettings, Path | None]:
    """How the run was made, files that have moved apart; and the corpus."""
    operational = config.get("operational", {})
    try:
        saved = GenerateSettings.model_validate(operational["settings"] | {"run": run})
    except (KeyError, TypeError, ValidationError) as error:
        raise InputError(
            f"{run / CONFIG} does not say with which settings the run was made; an older reasonrag did not write them. "
            "Run the same generate command again: it adds them and asks nothing"
        ) from error
    corpus = Path(operational["corpus"]) if operational.get("corpus") else None
    changed: dict[str, Any] = {"concurrency": given.concurrency}
    if given.prompts:
        changed["prompts"] = given.prompts
    if given.corpus or given.index:
        corpus = given.corpus
        changed |= {"corpus": given.corpus, "index": given.index}
    elif corpus and not corpus.exists():
        raise InputError(f"the corpus of the run, {corpus}, is not there any more: give --corpus or --index")
    return saved.model_copy(update=changed), corpus


# -- both sides once more --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """A step to be valued again, and the state it leads to; None for an answer, whose value is known.

    steps: edges from the root down to the step.
    """

    rollout: RolloutRecord
    node: RolloutNode
    state: State | None
    steps: int


_Sides = dict[tuple[str, int], _Side]
_Values = dict[tuple[str, int], float | None]


@dataclass(frozen=True)
class _Revaluer:
    """What a revaluation needs to know; see `calibrate`."""

    run: Path
    config: dict[str, Any]
    settings: CalibrateSettings
    chat_model: ChatModel | None
    retriever: Retriever | None
    watcher: Watcher

    async def revalue(self, sample: _Sample) -> Revaluation:
        """Both sides of the pairs, from the journal or from the model, which is opened only if it has to be asked."""
        continuing = _who_continues(self.run, self.config, self.settings, self.chat_model)
        policy, caps = continuing.policy, Caps(self.settings.max_cost, self.settings.max_calls)
        if caps.cost is not None:
            check_prices(policy, None)
        retriever, prompts = await self._open_retriever(continuing), self._load_prompts(continuing)
        async with AsyncExitStack() as opened:
            opened.enter_context(only_writer(self.run / PLACE))
            journal = await opened.enter_async_context(open_journal(self.run / PLACE / JOURNAL))
            spent = journal.delivered_by.get(continuing.recorded_as, Tokens())
            ledger = Ledger(policy.price, caps, spent=spent)

            def behind(model: ChatModel | None) -> JournaledModel:
                return JournaledModel(
                    model, journal, name=policy.name, ledger=ledger, recorded_as=continuing.recorded_as
                )

            agent = make_agent(continuing.settings, behind(None), policy.sampling, retriever, prompts)
            sides = await _sides_of(agent, sample.pairs)
            again = _Again(agent, self.settings.k)
            values, owed = await again.recorded(sides)
            if owed:
                model = self.chat_model or await owned(opened, continuing.open())
                values |= await again.asked(Models(behind(model)), owed, self.watcher)
        return _summary(
            [_revalued(each, values) for each in sample.pairs],
            again,
            model=policy.name,
            k=self.settings.k,
            seed=self.settings.seed,
            exportable=sample.seen,
            calls=ledger.spent.calls,
            session_calls=ledger.spent.calls - spent.calls,
            cost_usd=ledger.cost,
        )

    async def _open_retriever(self, continuing: _Continuing) -> Retriever:
        """The run's. Raises InputError where it is another one now."""
        recorded = self.config["decides_answers"]["retriever"]
        retriever = self.retriever or await open_retriever(continuing.settings, continuing.corpus, (), self.watcher)
        if retriever.identity != recorded:
            raise InputError(
                f"{self.run} was made with the index {recorded}, this one is {retriever.identity}: "
                "give the run's by --index, or its corpus by --corpus"
            )
        return retriever

    def _load_prompts(self, continuing: _Continuing) -> Prompts:
        """The run's. Raises InputError where they are others now."""
        prompts = load_prompts(continuing.settings.prompts)
        if prompts.hash != self.config["decides_answers"]["prompts"]:
            raise InputError(f"{self.run} was made with other prompts: give the directory they are in by --prompts")
        return prompts


async def _sides_of(agent: Agent, pairs: Iterable[Candidate]) -> _Sides:
    """Every step of the pairs once, its state rebuilt. Raises InputError where the index finds other passages."""
    sides: _Sides = {}
    for pair in pairs:
        for node in (pair.chosen, pair.rejected):
            if (key := (pair.rollout.question_id, node.id)) not in sides:
                state = None if node.terminal else await _state_after(agent, pair.rollout, node)
                sides[key] = _Side(pair.rollout, node, state, steps=pair.layer + 1)
    return sides


async def _state_after(agent: Agent, rollout: RolloutRecord, node: RolloutNode) -> State:
    """The state a recorded step led to: the replies on its path are the thoughts, its queries are searched again."""
    path = [node]
    while path[-1].parent_id:
        path.append(rollout.nodes[path[-1].parent_id])
    question = Question(id=rollout.question_id, question=rollout.question, golden_answers=rollout.golden_answers)
    state = agent.start(question)
    for each in reversed(path):
        step = AgentStep(
            state=state,
            prompt=tuple(each.prompt or ()),
            response=each.response or "",
            action_type=each.action_type,
            content=each.content,
            terminal=False,
        )
        state = await agent.next_state(step)
        _check_passages(agent.retriever, rollout, each, state)
    return state


def _check_passages(retriever: Retriever, rollout: RolloutRecord, query: RolloutNode, state: State) -> None:
    """Whether what was read after a query is what is found now."""
    read = next((rollout.nodes[each].passages for each in query.children_ids), None)
    found = [passage.id for passage in state.passages]
    if read is not None and found != (recorded := [passage.id for passage in read]):
        raise InputError(
            f"question {rollout.question_id}, node {query.id}: the index {retriever.identity} finds {found}, the run "
            f"had read {recorded}. Give the index that the run was made with: --index, or --corpus"
        )


class _Again:
    """Fresh continuations of steps, from the journal or from a model."""

    def __init__(self, agent: Agent, k: int) -> None:
        self.failures: Counter[str] = Counter()
        self.failed_attempts = 0
        self._agent = agent
        self._k = k

    async def recorded(self, sides: _Sides) -> tuple[_Values, _Sides]:
        """What the journal knows; and the sides that somebody has to be asked about."""
        values: _Values = {}
        for key, side in sides.items():
            try:
                values[key] = await self._mean(self._agent, side)
            except (ModelError, RetrievalError):  # not recorded, or to be met again when it is asked
                continue
        return values, {key: side for key, side in sides.items() if key not in values}

    async def asked(self, models: Models, sides: _Sides, watcher: Watcher) -> _Values:
        """Of every side; None where it was given up. Raises RunStopped, KeyboardInterrupt when that is Ctrl-C."""
        models.begin(on_failure=lambda _: self._count_attempt(), say=watcher.say)
        await models.check()

        async def value(position: int, side: _Side) -> float | None:
            own = replace(self._agent, model=models.teacher, priority=position, spending=Spending())
            try:
                return await self._mean(own, side)
            except (ModelError, RetrievalError) as error:
                self.failures[error.cause] += 1
                return None

        with models.interruptible(models.stop, say=watcher.say):
            try:
                found = await together(*(value(position, side) for position, side in enumerate(sides.values())))
            except Exception as error:
                models.stop(error if isinstance(error, RunStopped) else RunStopped(str(error)))
                await models.drain()
                if isinstance(error, Interrupted):
                    raise KeyboardInterrupt from error
                raise
            await models.drain()  # what a side that was given up had asked for is paid, too
        return dict(zip(sides, found, strict=True))

    def _count_attempt(self) -> None:
        self.failed_attempts += 1

    async def _mean(self, agent: Agent, side: _Side) -> float | None:
        """Mean discounted outcome over the continuations that are plain samples all along, as in the labels."""
        recipe = side.rollout.recipe
        if side.state is None:
            outcome = side.node.outcome.value if side.node.outcome else 0.0
            return shortest_path_reward(outcome, steps=side.steps, alpha=recipe.alpha)
        first = FRESH + STRIDE * side.steps
        rewards = [
            shortest_path_reward(outcome_of(path[-1], recipe.outcome), steps=side.steps + len(path), alpha=recipe.alpha)
            for path in await agent.continue_from(side.state, range(first, first + self._k))
            if all(step.plain for step in path)
        ]
        return statistics.mean(rewards) if rewards else None


def _revalued(pair: Candidate, values: _Values) -> RevaluedPair:
    chosen, rejected = (values[pair.rollout.question_id, node.id] for node in (pair.chosen, pair.rejected))
    scale = pair.rollout.recipe.alpha**pair.layer if pair.rollout.recipe.margin_by_layer else 1.0
    return RevaluedPair(
        question_id=pair.rollout.question_id,
        chosen_id=pair.chosen.id,
        rejected_id=pair.rejected.id,
        action_type=str(pair.chosen.action_type),
        layer=pair.layer,
        confidence=pair.confidence or 0.0,
        margin=pair.margin,
        fresh_margin=None if chosen is None or rejected is None else (chosen - rejected) / scale,
        chosen_fresh=chosen,
        rejected_fresh=rejected,
    )


def _summary(sample: list[RevaluedPair], again: _Again, **known: Any) -> Revaluation:
    """known: the fields that neither the pairs nor the failures tell."""
    decided = [
        Revalued(each.action_type, each.layer, each.confidence, each.margin, each.fresh_margin)
        for each in sample
        if each.fresh_margin is not None
    ]
    return Revaluation(
        **known,
        pairs=len(sample),
        unvalued=len(sample) - len(decided),
        failures_by_cause=dict(again.failures.most_common()),
        failed_attempts=again.failed_attempts,
        confidence_level=CONFIDENCE_LEVEL,
        confirmed=sign_agreement(decided),
        confirmed_by_action_type=sign_agreement_by(decided, lambda each: each.action_type),
        confirmed_by_layer=sign_agreement_by(decided, lambda each: str(each.layer)),
        mean_margin=statistics.mean(each.margin for each in decided) if decided else None,
        mean_fresh_margin=statistics.mean(each.fresh_margin for each in decided) if decided else None,
        reliability=reliability(decided),
        sample=sample,
    )
