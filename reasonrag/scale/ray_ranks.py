"""`generate --on ray`: the ranks of a run as actors of a Ray cluster.

Decides how many ranks a run has, when one is started again, and what Ctrl-C does. Only settings and paths travel: every
rank opens its own connections and retriever, and its answers go to its own journal, which is where it goes on after its
worker died. Does not know how a question is explored, nor how ranks are merged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from preference import read_rollouts
from reasonrag.agent.from_settings import caps_of, find_data, questions_left
from reasonrag.concurrency import calling_at, work_off
from reasonrag.errors import (
    CapReached,
    DegenerateRun,
    InputError,
    Interrupted,
    ReasonragError,
    RunStopped,
    StorageError,
)
from reasonrag.exploration.cost_estimate import rehearse_run
from reasonrag.exploration.explore import explore
from reasonrag.exploration.from_settings import find_models, find_rule
from reasonrag.exploration.settings import DEFAULT_WORKERS, GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason
from reasonrag.files import JOURNAL, ROLLOUTS
from reasonrag.llm.budget import Tokens
from reasonrag.llm.consent import ask_consent, needs_consent
from reasonrag.llm.limiter.limiter import Rates
from reasonrag.llm.model_spec import check_prices
from reasonrag.progress import TICK_S, SessionTally, Watcher
from reasonrag.ranks import Shard, read_manifest
from reasonrag.rendering import counted
from reasonrag.scale.merge import merge, summary_of_ranks
from reasonrag.scale.ray_cluster import ray_cluster
from reasonrag.scale.ray_limiter import RayLimiter, start_limiter
from reasonrag.web.client import shown_url

MOST_DEATHS = 5
"""Deaths of a rank's worker in a row, with no answer recorded in between, after which the run ends."""
SHOWN_MESSAGES = 100
"""Messages of a rank that wait to be shown; older ones are dropped."""
BEGIN_S = 20.0
"""Ranks that have not begun after so long are told of, and progress is shown without them."""
BASE_URL = "OPENAI_BASE_URL"


class RankActor:
    """One rank, in a worker process of Ray. Its coroutines share the worker's event loop."""

    def __init__(self, settings: Mapping[str, Any], base_url: str | None, limiter: Any) -> None:
        self._limiter = RayLimiter(limiter)
        self._settings = GenerateSettings.model_validate(settings)
        self._base_url = base_url
        self._interrupt = asyncio.Event()
        self._watcher = _Progress()

    async def run(self) -> dict[str, Any]:
        """How it ended: `error` and `cause`, or neither."""
        try:
            if os.environ.get(BASE_URL) != self._base_url:
                found = shown_url(os.environ.get(BASE_URL) or "not set")
                raise InputError(
                    f"{BASE_URL} is {found} on {socket.gethostname()} and another where the run was started; give "
                    "--base-url, or set it alike on all machines"
                )
            summary = await explore(
                self._settings, None, None, self._watcher, interrupt=self._interrupt, limiter=self._limiter
            )
        except KeyboardInterrupt:
            return {"error": "interrupted", "cause": Interrupted.cause}
        except ReasonragError as error:
            return {"error": str(error), "cause": error.cause}
        stopped = summary.stopped
        return {"stopped": stopped.model_dump()} if stopped else {}

    async def progress(self) -> dict[str, Any]:
        return self._watcher.taken()

    async def interrupt(self) -> None:
        """Finish as after the first Ctrl-C."""
        self._interrupt.set()


@dataclass
class _Progress:
    """A `Watcher` whose news wait until they are fetched."""

    total: int | None = None
    done: int = 0
    tally: SessionTally = field(default_factory=SessionTally)
    messages: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=SHOWN_MESSAGES))

    def say(self, message: str) -> None:
        self.messages.append(("say", message))

    def warn(self, message: str) -> None:
        self.messages.append(("warn", message))

    def confirm(self, question: str) -> bool:  # noqa: ARG002 - asked where the run was started
        return True

    def started(self, *, total: int, done: int) -> None:
        self.total, self.done = total, done

    def advanced(self, tally: SessionTally) -> None:
        self.tally = tally

    def ended(self) -> None: ...

    def taken(self) -> dict[str, Any]:
        messages = [*self.messages]
        self.messages.clear()
        return {"total": self.total, "done": self.done, "tally": asdict(self.tally), "messages": messages}


# -- where the run was started ---------------------------------------------------------------------------------


async def explore_on_ray(settings: GenerateSettings, watcher: Watcher) -> RunSummary:
    """Explore a run by ranks on a Ray cluster, and merge them once all are complete.

    What stopped some of them is in the summary, which then counts what there is. Raises InputError, StorageError and
    KeyboardInterrupt as `explore` does.
    """
    rule, run = find_rule(settings), settings.whole_run
    if settings.rank:
        raise InputError("--shard is one rank, --on ray starts them all: leave one out")
    teacher, student = find_models(settings)
    told = set[str]()

    def say(message: str) -> None:
        told.add(message)
        watcher.say(message)

    source, corpus = find_data(settings, rule.check, say=say)
    there, total = read_manifest(run), len(source.limited(settings.limit))
    if there is None and (run / ROLLOUTS).exists():
        raise InputError(f"{run} holds a run of one process; go on without --on ray, or choose another --run")
    check_prices(say, teacher, student, capped=settings.max_cost is not None)
    models = [each for each in (teacher, student) if each]
    if needs_consent(models, caps_of(settings), yes=settings.yes):
        usage = await rehearse_run(settings, source, corpus, rule=rule, models=(teacher, student), watcher=watcher)
        shares = usage.shares(teacher, student, low=total, high=total)
        work = questions_left(total, total, source, limited=settings.limit is not None)
        ask_consent(work, shares, watcher, caps=caps_of(settings), spent=Tokens())
    ranks = there.ranks if there else settings.workers or DEFAULT_WORKERS
    workers = min(settings.workers or ranks, ranks)
    watcher.say(f"run directory: {run}, {counted(ranks, 'rank')}, {counted(workers, 'worker')} at a time")
    with ray_cluster(settings.address, workers=workers) as ray:
        rates = Rates(settings.rpm, settings.tpm)
        limiter = start_limiter(ray, run, caps_of(settings), rates)
        work_of_ranks = RayRanks(ray, limiter, settings, ranks, workers, total, watcher, told)
        await work_of_ranks.run()
    return _concluded(run, work_of_ranks.ends, ranks, total, watcher)


def _concluded(
    run: Path, ends: Mapping[int, Mapping[str, Any]], ranks: int, total: int, watcher: Watcher
) -> RunSummary:
    """The merged run; or what there is of it, and why. Raises StorageError and KeyboardInterrupt."""
    for rank, end in sorted(ends.items()):
        if end.get("error") and end["cause"] != Interrupted.cause:
            raise StorageError(f"rank {rank}: {end['error']}")
    stops = [StopReason.model_validate(end["stopped"]) for _, end in sorted(ends.items()) if end.get("stopped")]
    if stops:
        folders = [Shard(rank, ranks).folder(run) for rank in sorted(ends)]
        rollouts = chain.from_iterable(read_rollouts(each / ROLLOUTS) for each in folders)
        return summary_of_ranks(run, folders, questions=total, rollouts=rollouts, stopped=stops[0])
    if len(ends) < ranks or any(end.get("error") for end in ends.values()):
        raise KeyboardInterrupt
    summary = merge(run, watcher=watcher).summary
    assert summary is not None  # noqa: S101 - it is a run of generate
    return summary


@dataclass
class RayRanks:
    """Explores the ranks of a run on a connected cluster, `workers` at a time.

    ray: the module. limiter: the actor that holds caps and rates. settings: of the whole run. total: its questions.
    told: messages that were shown, which ranks need not repeat.
    """

    ray: Any
    limiter: Any
    settings: GenerateSettings
    ranks: int
    workers: int
    total: int
    watcher: Watcher
    told: set[str]
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    """How each rank ended."""
    _actors: dict[int, Any] = field(default_factory=dict)
    _latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The latest progress of each rank."""
    _done_before: int | None = None
    _stopping: bool = False
    _error: ReasonragError | None = None
    """Why the run ends before all ranks have."""
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        """Explore until every rank has ended. Raises InputError for a rank that cannot start, RunStopped for one whose
        worker dies again and again, both once the others have finished their requests, and KeyboardInterrupt after the
        second Ctrl-C."""
        task, presses = asyncio.current_task(), list[float]()

        def interrupt() -> None:
            presses.append(time.monotonic())
            if len(presses) > 1 and task is not None:
                task.cancel()
                return
            self.watcher.say("finishing the requests in flight of all ranks; Ctrl-C again stops at once")
            self._stop()

        watching = asyncio.create_task(self._watch())
        try:
            with calling_at([signal.SIGINT], interrupt):
                await work_off(range(self.ranks), self._explore, at_once=self.workers)
        except asyncio.CancelledError:
            if not presses:
                raise
            raise KeyboardInterrupt from None
        finally:
            watching.cancel()
            self._advance()
            self.watcher.ended()
            for actor in self._actors.values():
                self.ray.kill(actor)
        if self._error:
            raise self._error

    def _fail(self, error: ReasonragError) -> None:
        self._error = self._error or error
        self._stop()

    def _stop(self) -> None:
        """Start no more ranks, and have those that run finish their requests."""
        self._stopping = True
        for actor in self._actors.values():
            actor.interrupt.remote()

    async def _explore(self, rank: int) -> None:
        """One rank, started again as often as its worker dies."""
        deaths, recorded = 0, self._recorded(rank)
        while not self._stopping:
            actor = self._actors[rank] = self._start(rank)
            try:
                end = await actor.run.remote()
                self._latest[rank] = await actor.progress.remote()
            except self.ray.exceptions.RayError as error:
                now = self._recorded(rank)
                deaths, recorded = (deaths + 1 if now == recorded else 1), now
                why = str(error).strip().partition("\n")[0]
                if deaths >= MOST_DEATHS:
                    died = f"the worker of rank {rank} died {deaths} times without an answer in between: {why}. Answers"
                    self._fail(RunStopped(f"{died} are kept; run the same command to go on"))
                    return
                self.watcher.say(f"the worker of rank {rank} died; it is started again from its journal ({why})")
                continue
            finally:
                self._actors.pop(rank)
                self.ray.kill(actor)
            self._tell(rank)
            if end.get("cause") == InputError.cause and deaths and deaths < MOST_DEATHS:
                deaths += 1  # the lock of a worker that a lost machine has not given up yet
                await asyncio.sleep(TICK_S * 2**deaths)
                continue
            self.ends[rank] = end
            if end.get("cause") == InputError.cause:
                self._fail(InputError(f"rank {rank}: {end['error']}"))
                return
            if end.get("error") or (end.get("stopped") or {}).get("cause") in (DegenerateRun.cause, CapReached.cause):
                self._stop()
            return

    def _start(self, rank: int) -> Any:
        of_a_rank = {"shard": f"{rank}/{self.ranks}", "on": "here", "workers": None, "address": None, "yes": True}
        own = self.settings.model_copy(update=of_a_rank | {"run": self.settings.whole_run})
        actor = self.ray.remote(num_cpus=1, max_restarts=0)(RankActor)
        return actor.remote(sent_settings(own), os.environ.get(BASE_URL), self.limiter)

    def _recorded(self, rank: int) -> int:
        """Bytes of a rank's journal."""
        journal = Shard(rank, self.ranks).folder(self.settings.whole_run) / JOURNAL
        return journal.stat().st_size if journal.exists() else 0

    # -- progress ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        told = False
        while True:
            await asyncio.sleep(TICK_S)
            await asyncio.gather(*(self._ask(rank, actor) for rank, actor in list(self._actors.items())))
            self._advance()
            waiting = self._actors.keys() - self._latest.keys()
            if waiting and not told and self._is_late:
                told = True
                there, free = self.ray.cluster_resources(), self.ray.available_resources()
                self.watcher.say(
                    f"waiting for {counted(len(waiting), 'rank')} to begin; each takes a CPU, and the cluster has "
                    f"{free.get('CPU', 0):g} of {there.get('CPU', 0):g} free"
                )

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._began > BEGIN_S

    async def _ask(self, rank: int, actor: Any) -> None:
        with suppress(self.ray.exceptions.RayError, TimeoutError):
            self._latest[rank] = await asyncio.wait_for(actor.progress.remote(), 10 * TICK_S)
            self._tell(rank)

    def _tell(self, rank: int) -> None:
        """Show what a rank said, unless another has said the same."""
        for kind, message in self._latest.get(rank, {}).get("messages", ()):
            if message not in self.told:
                self.told.add(message)
                getattr(self.watcher, kind)(f"rank {rank}: {message}")
        self._latest.get(rank, {})["messages"] = []

    def _advance(self) -> None:
        known = [each for each in self._latest.values() if each["total"] is not None]
        if self._done_before is None:
            if not known or (len(known) < self.workers and not self._is_late):
                return
            self._done_before = sum(each["done"] for each in known)
            self.watcher.started(total=self.total, done=self._done_before)
        tallies = [SessionTally(**each["tally"]) for each in known]
        questions = sum(each["done"] for each in known) + sum(each.questions for each in tallies)
        costs = [each.cost for each in tallies if each.cost is not None]
        projected = [(each.projected_cost, of["total"]) for each, of in zip(tallies, known, strict=True)]
        rated = [(cost, total) for cost, total in projected if cost is not None]
        waiting = Counter(each.waiting_for.partition(":")[0] for each in tallies if each.waiting_for)
        self.watcher.advanced(
            SessionTally(
                questions=questions - self._done_before,
                **{name: sum(getattr(each, name) for each in tallies) for name in _SUMS},
                seconds=time.monotonic() - self._began,
                cost=sum(costs) if costs else None,
                projected_cost=self.total * sum(cost for cost, _ in rated) / sum(total for _, total in rated)
                if rated
                else None,
                waiting_for=", ".join(f"{count} ranks: {why}" for why, count in waiting.most_common(1)),
            )
        )


_SUMS = ("failed_questions", "failed_calls", "calls", "cached_calls", "tokens", "in_flight")


def sent_settings(settings: GenerateSettings) -> dict[str, Any]:
    """Settings as plain values that mean the same in a process with another working directory: paths are absolute."""

    def absolute(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [absolute(name, each) for each in value]
        is_place = isinstance(value, Path) or name in ("encoder", "reranker")
        if value is not None and is_place and (name in ("run", "index_home") or Path(value).exists()):
            return str(Path(value).absolute())
        return value

    found = {name: absolute(name, getattr(settings, name)) for name in type(settings).model_fields}
    return GenerateSettings.model_validate(found).model_dump(mode="json")
