"""Throughput measured: reasonrag beside a bare loop and the published patterns, a rate limit held, CPU, memory.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Ratios come from one run on
one machine, which endpoint and client share. The endpoint, reasonrag, the bare loop and each pattern have processes of
their own. Costs nothing: the endpoint is the simulated one.
"""

# ruff: noqa: PLC0415 - a process loads what it measures, and nothing else
from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar

import typer
from main_job import simulated_endpoint
from reporting import ROOT, publish, table

from reasonrag.progress import SessionTally, SilentWatcher

T = TypeVar("T")

LATENCY_S = 0.2
QUESTIONS = {64: 200, 256: 486}
"""By requests in flight: a tree has about one in flight at a time, and the last trees have nothing to overlap with."""
IN_FLIGHT = tuple(QUESTIONS)
STEADY = (0.1, 0.7)
"""The steady rate is that between these shares of the answers: all trees are open, none has run out of work."""
CLIENT_REQUESTS = 10_000
SEGMENT_S = 2.0
"""CPU per reply is the median over row_ranges of at least so long."""
PATTERN_CALLS = 128
"""Per question, one after another: 64 simulations of two calls."""
PATTERN_A_PROCESSES, PATTERN_B_QUESTIONS = 10, 16
RPM, RPM_SETTLING_S, RPM_HELD_S = 10_000, 5.0, 120.0
RPM_QUESTIONS = 250
"""Enough to be busy for so long at that rate."""
MEMORY_COUNTIES = 800
"""Atlas with 5,120 train questions."""
MEMORY_AFTER = (500, 1_000, 2_500, 5_000)
MEMORY_TREES_AT_ONCE = 64
POLL_S = 0.5


def main(
    data_dir: Annotated[Path, typer.Option(help="Directory that holds hotpotqa/")] = ROOT.parent / "shared" / "data",
    part: Annotated[
        list[str] | None, typer.Option(help="loop, cpu, client, patterns, rpm or memory; repeatable")
    ] = None,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Measure throughput and print a report."""
    if not (data_dir / "hotpotqa").is_dir():
        sys.exit(f"there is no hotpotqa in {data_dir}; give --data-dir")
    parts = part or list(PARTS)
    if unknown := set(parts) - PARTS.keys():
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        bench = _Bench(data_dir.resolve(), Path(scratch), opened)
        publish(chain.from_iterable(PARTS[each](bench) for each in parts), append)


# -- the measurements ------------------------------------------------------------------------------------------


def _loop(bench: _Bench) -> Iterator[str]:
    """Reasonrag beside a loop that sends the same bodies through the same connection."""
    columns: dict[str, list[str]] = {}
    for in_flight in IN_FLIGHT:
        run, bare = bench.reasonrag(in_flight), bench.bare(in_flight)
        for name, each in (("bare loop", bare), ("reasonrag", run)):
            _add_row(
                columns,
                {
                    "": name,
                    "in flight": f"{in_flight}",
                    "requests": f"{each.requests:,}",
                    "s": f"{each.seconds:.1f}",
                    "steady requests/s": f"{each.steady_rate:,.0f}",
                    "ratio": f"{each.steady_rate / bare.steady_rate:.2f}",
                    "whole requests/s": f"{each.whole_rate:,.0f}",
                    "ratio of whole": f"{each.whole_rate / bare.whole_rate:.2f}",
                    "in flight, mean when steady": f"{each.mean_in_flight:.0f}",
                    "ms CPU per request": f"{1000 * each.cpu_s / each.requests:.2f}",
                    "cores busy": f"{each.busy_cores:.1f}",
                },
            )
    yield from table(
        f"reasonrag and a bare loop that sends its very requests, {1000 * LATENCY_S:.0f} ms latency (steady: from "
        f"{STEADY[0]:.0%} to {STEADY[1]:.0%} of the answers; whole: with the last trees, which wait for themselves; "
        f"cores busy: of {os.cpu_count()}, by all that ran on the machine)",
        columns,
    )


def _patterns(bench: _Bench) -> Iterator[str]:
    """What published code gets out of the same endpoint."""
    bodies, base_url = bench.bodies, bench.base_url
    serial = [(bodies, base_url, number) for number in range(PATTERN_A_PROCESSES)]
    with _processes(PATTERN_A_PROCESSES) as pool:
        pattern_a = sum(pool.map(_serial_questions, *zip(*serial, strict=True)))
    pattern_b = _in_own_process(_questions_at_once, bodies, base_url)
    rates = {
        f"A: {PATTERN_A_PROCESSES} processes, one serial question each": pattern_a,
        f"B: {PATTERN_B_QUESTIONS} questions in flight, each serial": pattern_b,
    } | {f"reasonrag, {in_flight} in flight": bench.reasonrag(in_flight).steady_rate for in_flight in IN_FLIGHT}
    yield from table(
        f"Published patterns ({PATTERN_CALLS} calls per question, one after another) at the same endpoint",
        {
            "": list(rates),
            "requests/s": [f"{each:,.0f}" for each in rates.values()],
            "times A": [f"{each / pattern_a:.1f}" for each in rates.values()],
            "times B": [f"{each / pattern_b:.1f}" for each in rates.values()],
        },
    )


def _client(bench: _Bench) -> Iterator[str]:
    """What the connection costs beside the openai package's client, whose work it does."""
    bodies, base_url, in_flight = bench.bodies, bench.base_url, max(IN_FLIGHT)
    runs = {
        "reasonrag's connection": _in_own_process(_send_all, bodies, base_url, in_flight, CLIENT_REQUESTS),
        "AsyncOpenAI over aiohttp": _in_own_process(_send_by_openai, bodies, base_url, in_flight, CLIENT_REQUESTS),
    }
    least = min(run.cpu_s for run in runs.values())
    yield from table(
        f"The same {CLIENT_REQUESTS:,} requests, {in_flight} in flight, nothing done with the answers",
        {
            "": list(runs),
            "ms CPU per request": [f"{1000 * run.cpu_s / run.requests:.2f}" for run in runs.values()],
            "times": [f"{run.cpu_s / least:.1f}" for run in runs.values()],
            "requests/s": [f"{run.whole_rate:,.0f}" for run in runs.values()],
        },
    )


def _rpm(bench: _Bench) -> Iterator[str]:
    """How much of a limit is used that only the endpoint's headers tell."""
    flags = ("--rpm", str(RPM), "--latency", str(LATENCY_S), "--canned")
    with simulated_endpoint(*flags) as base_url:
        run = bench.generate(base_url, in_flight=max(IN_FLIGHT), limit=RPM_QUESTIONS, name="rpm")
    begin = run.polls[0].at + RPM_SETTLING_S
    held = run.between(begin, begin + RPM_HELD_S)
    refused, seen = (
        sum(after - before for before, after in pairwise(values))
        for values in ([each.refused for each in run.polls], [each.requests for each in run.polls])
    )
    yield from table(
        f"A limit of {RPM:,} requests per minute held for {RPM_HELD_S:.0f} s after the first {RPM_SETTLING_S:.0f} s, "
        f"{max(IN_FLIGHT)} in flight allowed (429s: over the whole run)",
        {
            "answers per minute": [f"{held / RPM_HELD_S * 60:,.0f}"],
            "share of the limit": [f"{held / RPM_HELD_S * 60 / RPM:.3f}"],
            "requests": [f"{seen:,}"],
            "429s": [f"{refused:,}"],
            "share of 429s": [f"{refused / seen:.2%}"],
        },
    )


def _cpu(bench: _Bench) -> Iterator[str]:
    """What one call costs the client, everything included."""
    columns: dict[str, list[str]] = {}
    for in_flight in IN_FLIGHT:
        run = bench.reasonrag(in_flight)
        per_reply = [1000 * each for each in run.cpu_per_reply]
        _add_row(
            columns,
            {
                "in flight": f"{in_flight}",
                "replies": f"{run.replies:,}",
                "replies per request": f"{run.replies / run.requests:.2f}",
                "ms per reply, median": f"{statistics.median(per_reply):.2f}",
                "least": f"{min(per_reply):.2f}",
                "most": f"{max(per_reply):.2f}",
                "ms per reply, with start-up and end": f"{1000 * run.cpu_s / run.replies:.2f}",
                "ms per request, median": f"{statistics.median(per_reply) * run.replies / run.requests:.2f}",
                "ms per request, bare loop": f"{1000 * bench.bare(in_flight).cpu_s / run.requests:.2f}",
            },
        )
    yield from table(
        "CPU of the client (search, rendering, parsing, BM25, journal, HTTP; all threads, user and system), by "
        f"row_ranges of {SEGMENT_S:.0f} s",
        columns,
    )


def _memory(bench: _Bench) -> Iterator[str]:
    """Resident memory while the questions go by."""
    after, peak, seconds = _in_own_process(_remember, bench.scratch)
    columns = {
        "questions": [f"{each:,}" for each in after],
        "MB": [f"{each / 1e6:.0f}" for each in after.values()],
        "of the first": [f"{each / after[MEMORY_AFTER[0]]:.2f}" for each in after.values()],
    }
    yield from table(
        f"Resident memory of reasonrag, offline teacher in process, {MEMORY_TREES_AT_ONCE} trees at once, "
        f"2 simulations per question, atlas ({seconds:.0f} s; peak to the very end {peak / 1e6:.0f} MB)",
        columns,
    )


PARTS: dict[str, Callable[[_Bench], Iterator[str]]] = {
    "loop": _loop,
    "cpu": _cpu,
    "client": _client,
    "patterns": _patterns,
    "rpm": _rpm,
    "memory": _memory,
}


# -- what parts share --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Poll:
    """What the endpoint had seen at a time."""

    at: float
    requests: int
    answers: int
    refused: int
    in_flight: int
    busy_s: float
    """CPU that the whole machine has used."""


@dataclass
class _Run:
    """One load on the endpoint.

    cpu_s: of the whole process. cpu_per_reply: seconds, by row_ranges. busy_cores: by whatever ran on the machine.
    """

    requests: int
    seconds: float
    cpu_s: float
    replies: int = 0
    cpu_per_reply: Sequence[float] = ()
    polls: list[_Poll] = field(default_factory=list)
    busy_cores: float = 0.0

    @property
    def whole_rate(self) -> float:
        return self.requests / self.seconds

    @property
    def _steady(self) -> tuple[float, float]:
        """When the steady time began and ended."""
        first, last = self.polls[0].answers, self.polls[-1].answers
        begin, end = (self._reached(first + share * (last - first)) for share in STEADY)
        return begin, end

    @property
    def steady_rate(self) -> float:
        begin, end = self._steady
        return self.between(begin, end) / (end - begin)

    @property
    def mean_in_flight(self) -> float:
        begin, end = self._steady
        return statistics.mean(each.in_flight for each in self.polls if begin <= each.at <= end)

    def between(self, begin: float, end: float) -> float:
        """Answers between two times."""
        return self._answers_at(end) - self._answers_at(begin)

    def _answers_at(self, at: float) -> float:
        for before, after in pairwise(self.polls):
            if before.at <= at <= after.at:
                return before.answers + (after.answers - before.answers) * (at - before.at) / (after.at - before.at)
        raise ValueError("the run was too short for what is asked about it")

    def _reached(self, answers: float) -> float:
        before, after = next(each for each in pairwise(self.polls) if each[1].answers >= answers)
        share = (answers - before.answers) / max(1, after.answers - before.answers)
        return before.at + share * (after.at - before.at)


class _Bench:
    """Loads that several parts look at; each is put on the endpoint once, when it is first asked for."""

    def __init__(self, data_dir: Path, scratch: Path, opened: ExitStack) -> None:
        self.scratch = scratch
        self._corpus = data_dir / "hotpotqa" / "corpus.jsonl"
        self._questions = scratch / "hotpotqa.jsonl"
        files = (data_dir / "hotpotqa" / f"{split}.jsonl" for split in ("train", "dev"))
        self._questions.write_bytes(b"".join(each.read_bytes() for each in files))
        self._opened = opened
        self.reasonrag = cache(self._reasonrag)
        self.bare = cache(self._bare)

    @property
    def base_url(self) -> str:
        """An endpoint that has given every answer once, so that giving it again is cheap."""
        self._warm()
        return self._base_url

    @property
    def bodies(self) -> Path:
        """The bodies of all requests of the run, one a line."""
        self._warm()
        return self.scratch / "bodies.jsonl"

    def _warm(self) -> None:
        if hasattr(self, "_base_url"):
            return
        self._base_url = self._opened.enter_context(simulated_endpoint("--latency", str(LATENCY_S), "--canned"))
        arguments = self._arguments(max(IN_FLIGHT), max(QUESTIONS.values()), "warm")
        _in_own_process(_record, self._base_url, self.scratch / "bodies.jsonl", arguments)

    def _reasonrag(self, in_flight: int) -> _Run:
        return self.generate(self.base_url, in_flight=in_flight, limit=QUESTIONS[in_flight], name=f"run-{in_flight}")

    def _bare(self, in_flight: int) -> _Run:
        requests = self.reasonrag(in_flight).requests
        return _watched(self.base_url, _send_all, self.bodies, self.base_url, in_flight, requests)

    def generate(self, base_url: str, *, in_flight: int, limit: int, name: str) -> _Run:
        return _watched(base_url, _generate, self._arguments(in_flight, limit, name) | {"base_url": base_url})

    def _arguments(self, in_flight: int, limit: int, name: str) -> dict[str, Any]:
        return {
            "questions": self._questions,
            "corpus": self._corpus,
            "index_home": self.scratch / "indexes",
            "model": "offline",
            "limit": limit,
            "concurrency": in_flight,
            "run": self.scratch / name,
        }


def _watched(base_url: str, load: Callable[..., _Run], *arguments: Any) -> _Run:
    """A load in a process of its own, and what the endpoint saw of it meanwhile."""
    address, polls, over = f"{base_url.removesuffix('/v1')}/stats", [], threading.Event()

    def poll() -> None:
        while not over.is_set():
            with urllib.request.urlopen(address) as answer:  # noqa: S310 - our own endpoint
                stats = json.load(answer)
            counts = stats["requests"], stats["delivered"]["answers"], stats["refused"], stats["in_flight"]
            polls.append(_Poll(time.perf_counter(), *counts, _busy_s()))
            over.wait(POLL_S)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        run = _in_own_process(load, *arguments)
    finally:
        over.set()
        poller.join()
    idle = next(i for i, (before, after) in enumerate(pairwise(polls)) if after.requests > before.requests + 1)
    run.polls = polls[idle:]  # from the last look at which nothing but the trial request had come
    first, last = run.polls[0], run.polls[-1]
    run.busy_cores = (last.busy_s - first.busy_s) / (last.at - first.at)
    return run


def _busy_s() -> float:
    """CPU seconds of all processes since the start of the machine, user, nice and system; 0 where nobody says."""
    stat = Path("/proc/stat")
    ticks = map(int, stat.read_text().split(maxsplit=4)[1:4]) if stat.exists() else ()
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _in_own_process(work: Callable[..., T], *arguments: Any) -> T:
    with _processes(1) as pool:
        return pool.submit(work, *arguments).result()


def _add_row(columns: dict[str, list[str]], row: dict[str, str]) -> None:
    for name, value in row.items():
        columns.setdefault(name, []).append(value)


# -- what runs in processes of its own ---------------------------------------------------------------------------


class _Meter(SilentWatcher):
    """Notes when work began and ended, and CPU per reply by row_ranges."""

    def __init__(self) -> None:
        self.began = self.over = 0.0
        self.cpu_per_reply: list[float] = []
        self._last = (0.0, 0.0, 0)

    def started(self, *, total: int, done: int, noun: str = "question") -> None:  # noqa: ARG002 - the protocol's
        self.began = time.perf_counter()
        self._last = (self.began, time.process_time(), 0)

    def advanced(self, tally: SessionTally) -> None:
        at, cpu, calls = self._last
        now = time.perf_counter()
        if now - at >= SEGMENT_S and tally.calls > calls:
            used = time.process_time()
            self.cpu_per_reply.append((used - cpu) / (tally.calls - calls))
            self._last = (now, used, tally.calls)

    def ended(self) -> None:
        self.over = time.perf_counter()


def _generate(arguments: dict[str, Any]) -> _Run:
    import reasonrag

    meter = _Meter()
    summary = reasonrag.generate(**arguments, watcher=meter)
    return _Run(
        requests=summary.requests,
        seconds=meter.over - meter.began,
        cpu_s=time.process_time(),
        replies=summary.calls,
        cpu_per_reply=meter.cpu_per_reply,
    )


def _record(base_url: str, bodies: Path, arguments: dict[str, Any]) -> None:
    """The run once, each request's body kept on its way to the endpoint."""
    import reasonrag

    async def record() -> None:
        async with _recorder(base_url, bodies) as recorder_url:
            await asyncio.to_thread(reasonrag.generate, **arguments, base_url=recorder_url)

    asyncio.run(record())


@asynccontextmanager
async def _recorder(base_url: str, bodies: Path) -> AsyncIterator[str]:
    """The address of a proxy that writes the bodies that pass through it, one a line; the trial request left out."""
    from aiohttp import ClientSession, TCPConnector, web

    async def forward(request: web.Request) -> web.Response:
        body = await request.read()
        async with session.post(f"{base_url}/chat/completions", data=body) as answer:
            content = await answer.read()
        if b"Say yes." not in body:
            file.write(body + b"\n")
        return web.Response(body=content, status=answer.status, content_type="application/json")

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        with bodies.open("wb") as file:
            async with ClientSession(connector=TCPConnector(limit=0)) as session:
                await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
                yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _send_all(bodies: Path, base_url: str, in_flight: int, count: int) -> _Run:
    """The bare loop: the connection that reasonrag sends through, and nothing else."""
    from reasonrag.llm.endpoint.http_client import Connection

    connection = Connection(base_url, key="none", timeout=60)
    return _loop_over(bodies, count, in_flight, connection.post, connection.close)


def _send_by_openai(bodies: Path, base_url: str, in_flight: int, count: int) -> _Run:
    """The same through the openai package, the cheapest way it has."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=DefaultAioHttpClient())

    async def post(body: dict[str, Any]) -> object:
        return await client.post("/chat/completions", body=body, cast_to=object)

    return _loop_over(bodies, count, in_flight, post, client.close)


def _loop_over(
    bodies: Path,
    count: int,
    in_flight: int,
    post: Callable[[dict[str, Any]], Awaitable[object]],
    close: Callable[[], Awaitable[None]],
) -> _Run:
    requests = [json.loads(line) for line in islice(bodies.open("rb"), count)]
    gc.freeze()  # a loop that makes its requests as it goes would not have them to collect
    left = iter(requests)

    async def send() -> None:
        for body in left:
            await post(body)

    async def send_all() -> tuple[float, float]:
        began = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(in_flight)))
        over = time.perf_counter()
        await close()
        return began, over

    loaded = time.process_time()
    began, over = asyncio.run(send_all())
    return _Run(len(requests), seconds=over - began, cpu_s=time.process_time() - loaded)


def _serial_questions(bodies: Path, base_url: str, number: int) -> float:
    """Pattern A in one of its processes: one call after another. Requests per second."""
    from openai import OpenAI

    requests = _some(bodies, number)
    with OpenAI(base_url=base_url, api_key="none") as client:
        client.models.list()  # its first call is slow
        began = time.perf_counter()
        for body in requests:
            client.chat.completions.create(**body)
        return len(requests) / (time.perf_counter() - began)


def _questions_at_once(bodies: Path, base_url: str) -> float:
    """Pattern B: several questions at a time in one process, each one call after another. Requests per second."""
    from openai import AsyncOpenAI

    async def question(number: int) -> None:
        for body in _some(bodies, number):
            await client.chat.completions.create(**body)

    async def all_questions() -> float:
        async with client:
            await client.models.list()
            began = time.perf_counter()
            await asyncio.gather(*map(question, range(PATTERN_B_QUESTIONS)))
            return PATTERN_B_QUESTIONS * PATTERN_CALLS / (time.perf_counter() - began)

    client = AsyncOpenAI(base_url=base_url, api_key="none")
    return asyncio.run(all_questions())


def _some(bodies: Path, number: int) -> list[dict[str, Any]]:
    """As many requests as one question of the published patterns makes."""
    lines = bodies.read_bytes().splitlines()[number * PATTERN_CALLS :]
    return [json.loads(line) for line in lines[:PATTERN_CALLS]]


class _MemoryMeter(SilentWatcher):
    """Resident bytes after so many questions."""

    def __init__(self) -> None:
        self.after: dict[int, int] = {}

    def advanced(self, tally: SessionTally) -> None:
        if tally.questions in MEMORY_AFTER and tally.questions not in self.after:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.after[tally.questions] = pages * resource.getpagesize()


def _remember(scratch: Path) -> tuple[dict[int, int], int, float]:
    """Resident bytes after some numbers of questions; the most there ever were; seconds."""
    import reasonrag
    from reasonrag.data.atlas import write_world

    world, meter, began = write_world(scratch, MEMORY_COUNTIES), _MemoryMeter(), time.perf_counter()
    reasonrag.generate(
        questions=world / "train.jsonl",
        corpus=world / "corpus.jsonl",
        index_home=scratch / "indexes",
        model="offline",
        set={"search.simulations": 2},
        limit=MEMORY_AFTER[-1],
        concurrency=MEMORY_TREES_AT_ONCE,
        run=scratch / "memory",
        watcher=meter,
    )
    seconds = time.perf_counter() - began
    return meter.after, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, seconds


if __name__ == "__main__":
    typer.run(main)
