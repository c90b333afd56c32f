"""Critics as witnesses: their scores of steps, written into the candidates and the best paths of a data set.

Decides which critic may judge which question: none that was trained on it. Does not know what follows from a score;
`preference.filters` and the formats do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel

from preference import Message
from preference.candidates import QuestionRecord, StateRecord, StepRecord, read_lines
from preference.export.export_pairs import questions_of
from preference.export.files import atomic_replacement
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.filters import PairingRules, select
from reasonrag.curation.labels.judge_labels import JUDGING
from reasonrag.errors import ModelError
from reasonrag.files import FAILURES, JOURNAL, only_writer
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import Critic, FoundCritic, check_critic, open_critic, score_request
from reasonrag.llm.failure_log import FailureLog
from reasonrag.llm.journal import open_journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.models import Models
from reasonrag.llm.session import Session
from reasonrag.progress import Watcher
from reasonrag.rendering import counted


class CriticScores(BaseModel):
    """What the critics of a data set scored, and what that cost."""

    critics: list[str]
    scored: int
    """Steps that have a score."""
    given_up: int
    """Steps whose score failed; the same command asks again."""
    seen_by_all_critics: int
    """Questions that every critic was trained on: no critic scored them."""
    calls: int
    session_calls: int
    cost_usd: float


@dataclass(frozen=True)
class Witness:
    """A critic and how it is asked. model: asked instead of opening its server."""

    found: FoundCritic
    spec: ModelSpec
    model: ChatModel | None = None


@dataclass(frozen=True)
class CriticWitnesses:
    """The critics of a data set, and what they are to score.

    rules: whose pairs are scored, those that no other rule drops alone; None: no pairs. paths: whether best paths are.
    allowed: critics to which there are objections. caps: of all of them together.
    """

    all: tuple[Witness, ...]
    rules: PairingRules | None
    paths: bool
    allowed: bool = False
    caps: Caps = field(default_factory=Caps)


@dataclass
class _Scored:
    """The scores of a step by all critics that judged it."""

    scores: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        return sum(self.scores) / len(self.scores) if self.scores else None


@dataclass(frozen=True)
class _State:
    """Steps to score in one state."""

    question: str
    question_id: str
    prompt: tuple[Message, ...]
    steps: tuple[str, ...]


_Key = tuple[tuple[str, ...], str]


async def score_by_critics(staged: Path, out: Path, asked: CriticWitnesses, watcher: Watcher) -> CriticScores:
    """Have the steps of pairs and paths scored, one critic after the other, and write the scores there.

    The journal is that of the data set `out`. Raises InputError where a critic may not be used or cannot be asked,
    RunStopped where a cap or a lost endpoint ended it, KeyboardInterrupt where Ctrl-C did: the files are then as they
    were, scores are kept in the journal, and the same call goes on.
    """
    _check(staged, asked, watcher)
    known: dict[_Key, _Scored] = {}
    place = out / JUDGING
    given_up = calls = session_calls = 0
    cost = 0.0
    with only_writer(place, flag="--out"):
        for witness in asked.all:
            async with AsyncExitStack() as opened:
                journal = await opened.enter_async_context(open_journal(place / JOURNAL, say=watcher.say))
                failures = opened.enter_context(FailureLog(place / FAILURES))
                recorded = Models.journaled(journal, Caps(), (witness.spec, None))
                owed = [each for each in _states(staged, asked) if not _seen(witness, each)]
                model = witness.model
                if model is None and not all(_held(recorded, each) for each in owed):
                    model = await open_critic(witness.found, witness.spec, opened, say=watcher.say)
                models = Models.journaled(journal, _left(asked.caps, calls, cost), (witness.spec, model))
                before = models.spent.calls
                watcher.say(f"{witness.found.name}: {counted(sum(len(each.steps) for each in owed), 'step')} to score")
                await _Scoring(models, witness, known, failures).of_all(owed, watcher)
                given_up += failures.given_up.total()
                calls += models.spent.calls
                session_calls += models.spent.calls - before
                cost += models.cost or 0.0
    states = _states(staged, asked)
    unseen = {each.question for each in states if all(_seen(witness, each) for witness in asked.all)}
    if unseen:
        watcher.warn(
            f"{counted(len(unseen), 'question')} had no witness, as all critics were trained on them: reasonrag "
            "train-critic --folds 2 trains critics for each other's questions"
        )
    return CriticScores(
        critics=[each.found.name for each in asked.all],
        scored=_write_scores(staged, known),
        given_up=given_up,
        seen_by_all_critics=len(unseen),
        calls=calls,
        session_calls=session_calls,
        cost_usd=cost,
    )


def _check(staged: Path, asked: CriticWitnesses, watcher: Watcher) -> None:
    """Raises InputError for a critic of other prompts, or that failed its evaluation."""
    renderers = {each.origin.renderer for each in read_lines(staged / QUESTIONS, QuestionRecord)}
    renderer = renderers.pop() if len(renderers) == 1 else None
    for each in asked.all:
        if each.model is None:
            check_critic(each.found, renderer=renderer, questions=(), allowed=asked.allowed, warn=watcher.warn)


def _seen(witness: Witness, state: _State) -> bool:
    return witness.found.trained_on(state.question)


def _left(caps: Caps, calls: int, cost: float) -> Caps:
    """What earlier critics left of the caps."""
    return replace(
        caps,
        calls=None if caps.calls is None else max(0, caps.calls - calls),
        cost=None if caps.cost is None else max(0.0, caps.cost - cost),
    )


def _states(staged: Path, asked: CriticWitnesses) -> Iterator[_State]:
    if (rules := asked.rules) is not None:
        alone = replace(rules, consensus=False, max_per_combination=None, max_per_state=None, max_per_question=None)
        for states in questions_of(read_lines(staged / CANDIDATES, StateRecord)):
            wanted: dict[str, tuple[StateRecord, list[str]]] = {}
            for each in select(states, alone):
                if each.dropped is None:
                    _, steps = wanted.setdefault(each.state.state_id, (each.state, []))
                    steps += [each.chosen.response, each.rejected.response]
            for state, steps in wanted.values():
                distinct = tuple(dict.fromkeys(steps))
                yield _State(state.question, state.question_id, tuple(state.prompt), distinct)
    if asked.paths:
        for question in read_lines(staged / QUESTIONS, QuestionRecord):
            for step in question.path or ():
                yield _State(question.question, question.question_id, tuple(step.prompt), (step.response,))


def _key(prompt: Sequence[Message], step: str) -> _Key:
    return tuple(turn.content for turn in prompt), step


def _held(models: Models, state: _State) -> bool:
    asked = (score_request(state.prompt, step, question_id=state.question_id) for step in state.steps)
    return all(map(models.main.holds, asked))


class _Scoring:
    """One critic at work. known: what it adds its scores to."""

    def __init__(self, models: Models, witness: Witness, known: dict[_Key, _Scored], failures: FailureLog) -> None:
        self._models, self._known, self._failures = models, known, failures
        self._critic = Critic(models.main)
        self._at_once = witness.spec.limits.concurrency
        self._asked: set[_Key] = set()
        self._states = 0

    async def of_all(self, owed: Collection[_State], watcher: Watcher) -> None:
        """Raises RunStopped, KeyboardInterrupt for Ctrl-C."""

        def how_far() -> str:
            return f"{counted(self._states, 'state')} scored"

        session = Session(self._models, watcher, self._failures.attempt, how_far=how_far)
        await self._models.check()
        await session.run_or_raise(owed, self._of_one, at_once=self._at_once)

    async def _of_one(self, state: _State) -> None:
        steps = [step for step in state.steps if _key(state.prompt, step) not in self._asked]
        self._asked.update(_key(state.prompt, step) for step in steps)
        try:
            found = await self._critic.scores(state.prompt, steps, question_id=state.question_id)
        except ModelError as error:
            self._failures.give_up("score", error, question_id=state.question_id)
            return
        self._states += 1
        for step, each in zip(steps, found, strict=True):
            self._known.setdefault(_key(state.prompt, step), _Scored()).scores.append(each)


def _write_scores(staged: Path, known: dict[_Key, _Scored]) -> int:
    """Write the mean scores into the candidates and the paths; returns how many steps have one."""
    scored = 0

    def mean(prompt: Sequence[Message], step: str) -> float | None:
        nonlocal scored
        found = known[_key(prompt, step)].mean if _key(prompt, step) in known else None
        scored += found is not None
        return found

    def with_score(state: StateRecord) -> Callable[[StepRecord], StepRecord]:
        return lambda step: step.model_copy(update={"critic_score": mean(state.prompt, step.response)})

    states, asked = read_lines(staged / CANDIDATES, StateRecord), read_lines(staged / QUESTIONS, QuestionRecord)
    with atomic_replacement(staged / CANDIDATES) as lines:
        for state in states:
            steps = list(map(with_score(state), state.steps))
            lines.write(state.model_copy(update={"steps": steps}).to_line())
    with atomic_replacement(staged / QUESTIONS) as lines:
        for question in asked:
            path = question.path and [
                step.model_copy(update={"critic_score": mean(step.prompt, step.response)}) for step in question.path
            ]
            lines.write(question.model_copy(update={"path": path}).to_line())
    return scored
