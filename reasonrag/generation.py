"""`reasonrag generate`: many questions explored at once, written to a run directory as they finish.

Resolves settings into parts (questions, retriever, prompts, model, recipe), says what the run's configuration is,
keeps as many trees open as requests may be in flight, and survives the failure of any question. What a tree is, how
a file looks and how an endpoint is asked are decided elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson
from pydantic import BaseModel

from mcts import RECIPES, Recipe
from preference import QuestionError, RolloutRecord, read_rollouts
from reasonrag.agent import Agent, Spending
from reasonrag.chat import ChatModel, Sampling
from reasonrag.concurrency import Slots, together
from reasonrag.endpoints import CallFailure, EndpointModel, shown_url
from reasonrag.errors import InputError, ReasonragError, choices
from reasonrag.exploration import Explorer, RunIdentity
from reasonrag.offline import NAME as OFFLINE
from reasonrag.offline import OfflineTeacher
from reasonrag.prompting import load_prompts
from reasonrag.questions import (
    ATLAS,
    DATASETS,
    Question,
    QuestionSource,
    data_sets,
    find_questions,
    open_questions,
)
from reasonrag.recording import RecordingModel, ReplayModel
from reasonrag.retrieval import MANIFEST, BM25Retriever, Retriever, index_place, is_built, open_index, open_or_build
from reasonrag.runs import RunDirectory
from reasonrag.settings import MAX_STEPS, GenerateSettings, resolve

T = TypeVar("T")


class RunSummary(BaseModel):
    """What a run directory now holds, and what the last session did to it; the content of `summary.json`."""

    run: str
    config_hash: str
    recipe: str
    model: str
    dataset: str
    split: str
    seed: int
    questions: int
    """Asked for: the data set's, or --limit."""
    done: int
    failed: int
    failures_by_cause: dict[str, int]
    nodes: int
    continuations: int
    """Real continuations from the root to an answer, or to a failed step, which counts as 0."""
    mean_f1: float | None
    mean_em: float | None
    """Means over the continuations."""
    questions_mixed: int
    """Questions with both better and worse ends, the ones that can teach."""
    parse_failures_by_cause: dict[str, int]
    repair_turns: int
    calls: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    session_questions: int
    """Explored in the last session."""
    session_seconds: float
    session_failed_calls: int
    """Attempts without an answer, most of them repeated with success; see failures.jsonl."""
    warnings: list[str]
    versions: dict[str, str]


class Watcher(Protocol):
    """Someone who follows a run while it goes on."""

    def say(self, message: str) -> None:
        """A line worth reading now."""
        ...

    def started(self, *, total: int, done: int) -> None: ...

    def advanced(self, tally: SessionTally) -> None:
        """Called when a question ended and when an attempt failed."""
        ...

    def ended(self) -> None: ...


class SilentWatcher:
    """Watches and says nothing: the default of the Python call."""

    def say(self, message: str) -> None:
        """Nothing is shown."""

    def started(self, *, total: int, done: int) -> None:
        """Nothing is shown."""

    def advanced(self, tally: SessionTally) -> None:
        """Nothing is shown."""

    def ended(self) -> None:
        """Nothing is shown."""


@dataclass
class SessionTally:
    """Counts of the session so far."""

    questions: int = 0
    failed_questions: int = 0
    failed_calls: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


def generate(
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | None = None,
    watcher: Watcher | None = None,
    record: str | Path | None = None,
    replay: str | Path | None = None,
    **flags: Any,
) -> RunSummary:
    """Explore questions and write rollouts; the keyword arguments are the command's flags (`data_dir`: `--data-dir`).

    chat_model, retriever: used instead of what the settings would build.
    record: a file that every answer is kept in.
    replay: a recording that answers instead of the model, with no network.
    Works inside a running event loop too. Raises InputError before anything is started; failed questions are counted
    in the summary, not raised.
    """
    settings = resolve(GenerateSettings, "generate", flags)
    if replay is not None:
        chat_model = ReplayModel(Path(replay), name=chat_model.name if chat_model else _model_name(settings))
    coroutine = _generate(settings, chat_model, retriever, watcher or SilentWatcher(), record)
    return run_to_end(coroutine)


def run_to_end(coroutine: Awaitable[T]) -> T:
    """The result of a coroutine, whether or not this thread already runs an event loop.

    An interrupt (Ctrl-C, a notebook's stop button) ends the work in either case before it is passed on.
    """

    async def awaited() -> T:
        return await coroutine

    try:
        caller = asyncio.current_task()
    except RuntimeError:
        return asyncio.run(awaited())
    outcome: Future[T] = Future()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def announced() -> T:
        task = asyncio.ensure_future(awaited())
        running.set_result((asyncio.get_running_loop(), task))
        return await task

    def in_thread() -> None:
        try:
            outcome.set_result(asyncio.run(announced()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread below
            outcome.set_exception(error)

    thread = threading.Thread(target=in_thread, name="reasonrag")
    thread.start()
    try:
        _join(thread, caller)
    except BaseException:
        loop, task = running.result()
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    return outcome.result()


def _join(thread: threading.Thread, caller: asyncio.Task[Any] | None) -> None:
    """Wait for a thread. Raises CancelledError when the waiting task is cancelled: so asyncio.run passes on Ctrl-C."""
    while thread.is_alive():
        thread.join(0.1)
        if caller is not None and caller.cancelling():
            raise asyncio.CancelledError


async def _generate(
    settings: GenerateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
    record: str | Path | None,
) -> RunSummary:
    source, corpus = _find_data(settings)
    prompts = load_prompts(settings.prompts)
    async with AsyncExitStack() as opened:
        teacher = chat_model or _open_model(settings)
        if teacher is not chat_model:
            opened.push_async_callback(teacher.close)
        model = teacher
        if record is not None:
            model = RecordingModel(teacher, Path(record))
            opened.push_async_callback(model.close)
        if retriever is None:
            retriever = await _open_retriever(settings, corpus, teacher, watcher)
        agent = Agent(
            model=model,
            retriever=retriever,
            prompts=prompts,
            sampling=Sampling(temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_tokens),
            top_k=settings.top_k,
            max_steps=settings.max_steps or MAX_STEPS[settings.recipe],
            seed=settings.seed,
        )
        identity, config = _identify(agent, source, settings)
        with RunDirectory(settings.run, config, say=watcher.say) as run:
            session = _Session(run, identity, watcher)
            if isinstance(teacher, EndpointModel):
                teacher.on_failure = session.call_failed
            try:
                await session.explore_all(agent, source, settings)
            finally:
                watcher.ended()
            run.put_in_order(question.id for question in source.read(settings.limit))
            summary = _summarise(run, session, source, settings, model.name)
            run.write_summary(summary.model_dump())
    return summary


def _identify(agent: Agent, source: QuestionSource, settings: GenerateSettings) -> tuple[RunIdentity, dict[str, Any]]:
    """What every record says about the run, and the content of its config.json."""
    recipe = resolve_recipe(settings)
    decides_answers = {
        "dataset": source.dataset,
        "split": source.split,
        "questions_sha256": source.sha256,
        "retriever": agent.retriever.identity,
        "top_k": agent.top_k,
        "prompts": agent.prompts.hash,
        "model": agent.model.name,
        "sampling": agent.sampling.model_dump(mode="json", exclude={"stop"}),
        "recipe": recipe.model_dump(mode="json"),
        "max_steps": agent.max_steps,
        "seed": agent.seed,
    }
    identity = RunIdentity(
        dataset=source.dataset,
        split=source.split,
        config_hash=config_hash(decides_answers),
        seed=agent.seed,
        recipe=recipe,
    )
    config = {
        "config_hash": identity.config_hash,
        "decides_answers": decides_answers,
        "operational": _operational(settings, source),
        "versions": versions(),
    }
    return identity, config


@dataclass
class _Session:
    """One sitting at a run: explores what is owed and keeps count."""

    run: RunDirectory
    identity: RunIdentity
    watcher: Watcher
    tally: SessionTally = field(default_factory=SessionTally)
    began: float = field(default_factory=time.monotonic)

    async def explore_all(self, agent: Agent, source: QuestionSource, settings: GenerateSettings) -> None:
        """Explore every owed question, oldest first, with as many trees open as requests may be in flight.

        A tree has a request in flight almost always, so that fills the endpoint; older trees' requests go first.
        """
        total = min(source.total, settings.limit or source.total)
        owed = iter(self._owed(source.read(settings.limit)))
        first = next(owed, None)
        done = sum(self.run.is_done(question.id) for question in source.read(settings.limit))
        self.watcher.started(total=total, done=done)
        if first is None:
            return
        await agent.model.check()
        queue = enumerate(_chain(first, owed))

        async def explore_in_turn() -> None:
            for position, question in queue:
                await self._explore(replace(agent, priority=position, spending=Spending()), question)

        await together(*(explore_in_turn() for _ in range(min(settings.concurrency, total - done))))

    def _owed(self, questions: Iterable[Question]) -> Iterator[Question]:
        return (question for question in questions if not self.run.is_done(question.id))

    async def _explore(self, agent: Agent, question: Question) -> None:
        """One question to its line, whatever happens to it."""
        explorer = Explorer(agent, question, self.identity.recipe)
        try:
            await explorer.run()
            rollout = explorer.record(self.identity)
        except ReasonragError as error:
            rollout = self._failed(explorer, error.cause, str(error), details=None)
        except Exception as error:  # noqa: BLE001 - a fault of ours must cost one question, not the run
            message = f"{type(error).__name__}: {error}"
            rollout = self._failed(explorer, "internal", message, details=traceback.format_exc())
        self.run.append(rollout)
        self._count(rollout)

    def _failed(self, explorer: Explorer, cause: str, message: str, *, details: str | None) -> RolloutRecord:
        self.run.record_failure(
            {
                "kind": "question",
                "question_id": explorer.question.id,
                "cause": cause,
                "message": message,
                "details": details,
            }
        )
        return explorer.error_record(self.identity, QuestionError(cause=cause, message=message))

    def _count(self, rollout: RolloutRecord) -> None:
        usage = rollout.usage
        self.tally.questions += 1
        self.tally.failed_questions += rollout.error is not None
        self.tally.calls += usage.calls
        self.tally.tokens += usage.prompt_tokens + usage.completion_tokens
        self._advance()

    def call_failed(self, failure: CallFailure) -> None:
        """Write down an attempt that got no answer."""
        self.tally.failed_calls += 1
        self.run.record_failure(
            {
                "kind": "call",
                "cause": failure.cause,
                "message": failure.message,
                "attempt": failure.attempt,
                "final": failure.final,
            }
        )
        self._advance()

    def _advance(self) -> None:
        self.tally.seconds = time.monotonic() - self.began
        self.watcher.advanced(self.tally)


# -- from settings to parts ------------------------------------------------------------------------------------


def _find_data(settings: GenerateSettings) -> tuple[QuestionSource, Path | None]:
    """The questions, and the corpus that belongs to them (None: the one of --index)."""
    if settings.data_dir and not (settings.dataset or settings.questions):
        raise InputError(f"--data-dir {settings.data_dir} needs --dataset; {choices('', data_sets(settings.data_dir))}")
    if settings.questions:
        if settings.dataset:
            raise InputError("give --questions or --dataset, not both")
        source = open_questions(settings.questions, dataset=settings.questions.stem, split=settings.split)
        return source, _own_corpus(settings, "--questions")
    dataset = settings.dataset or ATLAS
    if dataset not in DATASETS and settings.data_dir is None:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, DATASETS)}")
    if dataset == ATLAS:
        return _atlas(settings)
    source = find_questions(dataset, settings.split, settings.data_dir)
    if settings.data_dir is None:
        return source, _own_corpus(settings, f"--dataset {dataset} without --data-dir")
    return source, settings.corpus or settings.data_dir / dataset / "corpus.jsonl"


def _own_corpus(settings: GenerateSettings, what: str) -> Path | None:
    if settings.corpus is None and settings.index is None:
        raise InputError(
            f"{what} needs passages to search: give --corpus FILE (JSONL, one "
            '{"id", "contents": "title\\ntext"} per line) or --index DIR of a built index'
        )
    return settings.corpus


def _atlas(settings: GenerateSettings) -> tuple[QuestionSource, Path | None]:
    from reasonrag.atlas import SPLITS, write_world

    if settings.split not in SPLITS:
        raise InputError(f"atlas has no split {settings.split!r}; {choices(settings.split, SPLITS)}")
    try:
        world = write_world(settings.index_home)
    except OSError as error:
        raise InputError(f"cannot write atlas below {settings.index_home}: {error.strerror}") from error
    source = open_questions(world / f"{settings.split}.jsonl", dataset=ATLAS, split=settings.split)
    return source, settings.corpus or world / "corpus.jsonl"


async def _open_retriever(
    settings: GenerateSettings, corpus: Path | None, teacher: ChatModel, watcher: Watcher
) -> BM25Retriever:
    place = settings.index
    if place is not None and (place / MANIFEST).exists():
        found = open_index(place)  # never built over: it may have taken hours
        if settings.corpus and str(settings.corpus.resolve()) != found.manifest.corpus:
            raise InputError(
                f"{place} is the index of {found.manifest.corpus}, not of {settings.corpus}; "
                "leave out --corpus or choose another --index"
            )
        return found
    if corpus is None:
        raise InputError(f"{place} holds no finished index; give --corpus FILE to have it built there")
    place = place or index_place(corpus, settings.index_home)
    if not is_built(place, corpus):
        await teacher.check()  # nobody should wait for an index only to learn that the key is wrong
    return open_or_build(place, corpus, say=watcher.say)


def _model_name(settings: GenerateSettings) -> str:
    if settings.model:
        return settings.model
    if settings.questions is None and (settings.dataset or ATLAS) == ATLAS:
        return OFFLINE
    raise InputError(
        "give --model: a model of your endpoint (gpt-4o, or what --base-url serves), or offline for the "
        "extractive teacher that costs nothing"
    )


def _open_model(settings: GenerateSettings) -> ChatModel:
    name = _model_name(settings)
    if name == OFFLINE and settings.base_url is None:
        return OfflineTeacher()
    return EndpointModel(name, base_url=settings.base_url, slots=Slots(settings.concurrency))


def resolve_recipe(settings: GenerateSettings) -> Recipe:
    """The named recipe with the widths and budgets that were set explicitly."""
    recipe = RECIPES[settings.recipe]
    overrides = {
        "siblings": settings.siblings,
        "continuations": settings.continuations,
        "simulations": settings.simulations,
        "max_calls": settings.max_calls_per_question,
    }
    changed = {name: value for name, value in overrides.items() if value is not None}
    return recipe.model_copy(update={"search": recipe.search.model_copy(update=changed)})


def config_hash(decides_answers: dict[str, Any]) -> str:
    """Names everything that decides answers, in 16 hexadecimal digits."""
    canonical = orjson.dumps(decides_answers, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:16]


def _operational(settings: GenerateSettings, source: QuestionSource) -> dict[str, Any]:
    """Settings that may change between sessions of a run."""
    base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL")
    return {
        "limit": settings.limit,
        "concurrency": settings.concurrency,
        "base_url": shown_url(base_url) if base_url else None,
        "questions": str(source.path),
        "hub_revision": source.revision,
    }


def versions() -> dict[str, str]:
    """What the results were made with."""
    packages = ("reasonrag", "openai", "bm25s", "pydantic")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


# -- the summary -----------------------------------------------------------------------------------------------


def _summarise(
    run: RunDirectory,
    session: _Session,
    source: QuestionSource,
    settings: GenerateSettings,
    model_name: str,
) -> RunSummary:
    counts = _RunCounts()
    for rollout in read_rollouts(run.rollouts_path):
        counts.add(rollout)
    return RunSummary(
        run=str(run.path),
        config_hash=session.identity.config_hash,
        recipe=session.identity.recipe.name,
        model=model_name,
        dataset=source.dataset,
        split=source.split,
        seed=settings.seed,
        questions=min(source.total, settings.limit or source.total),
        done=counts.done,
        failed=counts.failures.total(),
        failures_by_cause=dict(counts.failures.most_common()),
        nodes=counts.nodes,
        continuations=counts.continuations,
        mean_f1=counts.f1 / counts.continuations if counts.continuations else None,
        mean_em=counts.em / counts.continuations if counts.continuations else None,
        questions_mixed=counts.mixed,
        parse_failures_by_cause=dict(counts.parse_failures.most_common()),
        repair_turns=counts.repair_turns,
        calls=counts.calls,
        requests=counts.requests,
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        session_questions=session.tally.questions,
        session_seconds=round(time.monotonic() - session.began, 2),
        session_failed_calls=session.tally.failed_calls,
        warnings=counts.warnings(source.split),
        versions=versions(),
    )


@dataclass
class _RunCounts:
    """Sums over the records of a run."""

    done: int = 0
    nodes: int = 0
    continuations: int = 0
    f1: float = 0.0
    em: float = 0.0
    mixed: int = 0
    repair_turns: int = 0
    calls: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    parse_failures: Counter[str] = field(default_factory=Counter)

    def add(self, rollout: RolloutRecord) -> None:
        self.calls += rollout.usage.calls
        self.requests += rollout.usage.requests
        self.prompt_tokens += rollout.usage.prompt_tokens
        self.completion_tokens += rollout.usage.completion_tokens
        if rollout.error:
            self.failures[rollout.error.cause] += 1
            return
        self.done += 1
        self.nodes += len(rollout.nodes)
        finals = rollout.nodes[0].rollouts
        self.continuations += len(finals)
        self.f1 += sum(each.f1 for each in finals)
        self.em += sum(each.em for each in finals)
        self.mixed += len({each.f1 for each in finals}) > 1
        self.repair_turns += rollout.usage.repairs
        in_tree = [node.parse_error for node in rollout.nodes]
        outside = [each.parse_error for each in rollout.failed_continuations]
        self.parse_failures.update(error.cause for error in in_tree + outside if error)
        if rollout.unreadable_judgements:
            self.parse_failures["no_score"] += len(rollout.unreadable_judgements)

    def warnings(self, split: str) -> list[str]:
        found = []
        if split != "train":
            found.append(
                f"the questions are from the {split} split: keep what is made of them out of training, "
                "or never evaluate on that split"
            )
        if self.calls and not self.prompt_tokens:
            found.append("the endpoint reported no token usage; the token counts are not known")
        return found


def _chain(first: Question, rest: Iterator[Question]) -> Iterator[Question]:
    yield first
    yield from rest
