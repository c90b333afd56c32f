"""`generate --on ray`: the ranks of a run as actors of a Ray cluster.

Decides how many ranks a run has, when one is started again, and what Ctrl-C does. Only settings and paths travel: every
rank opens its own connections and retriever, and its answers go to its own journal, which is where it goes on after its
worker died. Does not know how a question is explored, nor how ranks are merged.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preference import read_rollouts
from reasonrag.concurrency import interruptible, work_off
from reasonrag.errors import CapReached, DegenerateRun, InputError, Interrupted, ReasonragError
from reasonrag.exploration.explore import Given, check_whole, explore
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason, added_up
from reasonrag.files import ROLLOUTS
from reasonrag.progress import TICK_S, SessionTally, SilentWatcher, Watcher
from reasonrag.ranks import DEFAULT_WORKERS, Shard, read_manifest
from reasonrag.rendering import counted
from reasonrag.run_config import has_answers
from reasonrag.scale.merge import merge
from reasonrag.scale.ray_cluster import errors_of_workers, ray_cluster

MOST_DEATHS = 10
"""Of a rank's worker, after which the run ends."""


class RankActor(SilentWatcher):
    """One rank, in a worker process of Ray, and the watcher of its exploration. Its coroutines share an event loop."""

    def __init__(self, settings: GenerateSettings, folder: Path, base_url: str | None) -> None:
        self._settings, self._folder, self._base_url = settings, folder, base_url
        self._interrupt, self._tally = asyncio.Event(), SessionTally()
        self._done: int | None = None
        self._messages = list[tuple[str, str]]()

    async def run(self) -> StopReason | None:
        """Why it ended early; None: it did not. Raises InputError and StorageError."""
        import ray

        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.say("its worker died, and another one goes on from its journal")
        os.chdir(self._folder)  # where paths of settings mean places from
        if self._base_url:
            os.environ["OPENAI_BASE_URL"] = self._base_url
        try:
            return (await explore(self._settings, self, Given(interrupt=self._interrupt))).stopped
        except KeyboardInterrupt:
            return StopReason(cause=Interrupted.cause, message="interrupted")

    async def news(self) -> tuple[int | None, SessionTally, list[tuple[str, str]]]:
        """Questions done before it began, if it has; its tally; what it says, and how."""
        messages = [*self._messages]
        self._messages.clear()
        return self._done, self._tally, messages

    async def interrupt(self) -> None:
        """Finish as after the first Ctrl-C."""
        self._interrupt.set()

    def say(self, message: str) -> None:
        self._messages.append(("say", message))

    def warn(self, message: str) -> None:
        self._messages.append(("warn", message))

    def started(self, *, total: int, done: int, noun: str = "question") -> None:  # noqa: ARG002 - the run's are known
        self._done = done

    def advanced(self, tally: SessionTally) -> None:
        self._tally = tally


async def explore_on_ray(settings: GenerateSettings, watcher: Watcher) -> RunSummary:
    """Explore a run by ranks on a Ray cluster, and merge them once all have ended.

    What stopped some of them is in the summary, which then counts what there is. Raises InputError, StorageError and
    KeyboardInterrupt as `explore` does.
    """
    run = settings.whole_run
    if settings.rank:
        raise InputError("--shard is one rank, --on ray starts them all: leave one out")
    there = read_manifest(run)
    if there is None and has_answers(run):
        raise InputError(f"{run} holds a run of one process; go on without --on ray, or choose another --run")
    total = check_whole(settings, watcher)
    ranks = there.ranks if there else settings.workers or DEFAULT_WORKERS
    workers = min(settings.workers or ranks, ranks)
    watcher.say(f"run directory: {run}, {counted(ranks, 'rank')}, {counted(workers, 'worker')} at a time")
    with ray_cluster(workers=workers) as ray:
        work = RayRanks(ray, settings, ranks, workers, total, watcher)
        await work.explore_all()
    stops = [each for _, each in sorted(work.ends.items()) if each and each.cause != CapReached.cause]
    if len(work.ends) == ranks and not stops:
        return merge(run, watcher=watcher).summary
    if not (stopped := next((each for each in stops if each.cause != Interrupted.cause), None)):
        raise KeyboardInterrupt
    folders = [Shard(rank, ranks).folder(run) for rank in sorted(work.ends)]
    rollouts = (each for folder in folders for each in read_rollouts(folder / ROLLOUTS))
    return added_up(run, folders, questions=total, rollouts=rollouts, stopped=stopped)


@dataclass
class RayRanks:
    """Explores the ranks of a run on a connected cluster, `workers` at a time.

    ray: the module. settings: of the whole run. total: its questions.
    """

    ray: Any
    settings: GenerateSettings
    ranks: int
    workers: int
    total: int
    watcher: Watcher
    ends: dict[int, StopReason | None] = field(default_factory=dict)
    """Why each rank ended early; None: it did not."""
    _told: set[str] = field(default_factory=set)
    """Messages of ranks that were shown."""
    _actors: dict[int, Any] = field(default_factory=dict)
    _latest: dict[int, tuple[int, SessionTally]] = field(default_factory=dict)
    """Of each rank that has begun: the questions done before, and its tally."""
    _done_before: int | None = None
    _stopping: bool = False
    _error: ReasonragError | None = None
    """Why the run ends before all ranks have."""

    async def explore_all(self) -> None:
        """Explore until every rank has ended. Raises what a rank raised, and RunStopped for one whose worker dies again
        and again, both once the others have finished their requests, and KeyboardInterrupt after the second Ctrl-C."""
        watching = asyncio.create_task(self._watch())
        try:
            with interruptible(self._stop, self.watcher.say):
                await work_off(range(self.ranks), self._explore, at_once=self.workers)
        finally:
            watching.cancel()
            self._advance()
            self.watcher.ended()
            for actor in self._actors.values():
                self.ray.kill(actor)
        if self._error:
            raise self._error

    def _stop(self) -> str:
        """Start no more ranks, and have those that run finish what is returned."""
        self._stopping = True
        for actor in self._actors.values():
            actor.interrupt.remote()
        return "the requests in flight of all ranks"

    async def _explore(self, rank: int) -> None:
        """One rank. Where its worker dies, Ray starts another one and its exploration again."""
        if self._stopping:
            return
        of_a_rank = {"shard": f"{rank}/{self.ranks}", "on": "here", "workers": None, "yes": True}
        own = self.settings.model_copy(update=of_a_rank | {"run": self.settings.whole_run})
        kind = self.ray.remote(num_cpus=1, max_restarts=MOST_DEATHS, max_task_retries=MOST_DEATHS)(RankActor)
        actor = self._actors[rank] = kind.remote(own, Path.cwd(), os.environ.get("OPENAI_BASE_URL"))
        try:
            with errors_of_workers(self.ray, f"the worker of rank {rank}"):
                self.ends[rank] = end = await actor.run.remote()
                self._tell(rank, await actor.news.remote())
            if end and end.cause == DegenerateRun.cause:
                self._stop()
        except ReasonragError as error:
            error.args = (f"rank {rank}: {error}",)
            self._error = self._error or error
            self._stop()
        finally:
            self._actors.pop(rank)
            self.ray.kill(actor)

    # -- progress ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            asked = {rank: asyncio.wait_for(each.news.remote(), 10 * TICK_S) for rank, each in self._actors.items()}
            for rank, news in zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True):
                if not isinstance(news, BaseException):  # it has not begun, or its worker has died
                    self._tell(rank, news)
            if self._stopping:  # a worker that was started again has not heard of it
                self._stop()
            self._advance()

    def _tell(self, rank: int, news: Any) -> None:
        """Keep a rank's progress, and show what it said, unless another has said the same."""
        done, tally, messages = news
        if done is not None:
            self._latest[rank] = done, tally
        for kind, message in messages:
            if message not in self._told:
                self._told.add(message)
                getattr(self.watcher, kind)(f"rank {rank}: {message}")

    def _advance(self) -> None:
        """Show the sum of all ranks' progress, once as many have begun as the cluster has room for."""
        done = sum(each for each, _ in self._latest.values())
        room = int(self.ray.cluster_resources().get("CPU", 1))
        if self._done_before is None and len(self._latest) >= max(1, min(self.workers, room)):
            self._done_before = done
            self.watcher.started(total=self.total, done=done)
        if self._done_before is not None:
            tally = SessionTally.of_all([each for _, each in self._latest.values()])
            tally.questions += done - self._done_before
            self.watcher.advanced(tally)
