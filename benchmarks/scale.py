"""How one run grows over ranks: answers per second, what Ray adds, and on paper 1, 10 and 100
machines.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. The endpoint is the simulated
one, in a process of its own on the same machine, which has given every answer once before; so the ranks share the cores
with it, and with each other. Nothing here ran on more than one machine: what more would do is reckoned, and says so.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from main_job import simulated_endpoint
from reporting import ROOT, publish, table

from preference import RolloutRecord, read_rollouts
from reasonrag.retrieval.remote import open_remote

LATENCY_S = 0.2
RANKS = (1, 2, 4)
QUESTIONS = 400
CONCURRENCY = 128
"""Per rank."""
CORES = 16
"""Of a machine on paper, all but one of which run ranks."""
DISK_BYTES_S = 200e6
"""Of a shared file system on paper: a modest NFS server over 10 Gbit/s, several clients writing."""


def main(
    data_dir: Annotated[Path, typer.Option(help="Directory that holds hotpotqa/")] = ROOT.parent / "shared" / "data",
    part: Annotated[list[str] | None, typer.Option(help="ranks or paper; repeatable")] = None,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Measure, and reckon."""
    if not (data_dir / "hotpotqa").is_dir():
        sys.exit(f"there is no hotpotqa in {data_dir}; give --data-dir")
    parts = part or list(PARTS)
    if unknown := set(parts) - PARTS.keys():
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        bench = _Bench(data_dir.resolve(), Path(scratch), opened)
        publish(chain.from_iterable(PARTS[each](bench) for each in parts), append)


@dataclass(frozen=True)
class _Grown:
    """A run of some ranks. session_s: of the slowest rank, from its first request to its last answer; wall_s: of the
    whole command, or of the slowest process, with what starts and merges them."""

    ranks: int
    answers: int
    session_s: float
    wall_s: float
    journal_bytes: int
    searches: int
    """Different queries of a question."""

    @property
    def rate(self) -> float:
        return self.answers / self.session_s


class _Bench:
    def __init__(self, data_dir: Path, scratch: Path, opened: ExitStack) -> None:
        self.scratch = scratch
        self._questions, self._corpus = data_dir / "hotpotqa" / "train.jsonl", data_dir / "hotpotqa" / "corpus.jsonl"
        self._opened = opened
        self._runs = 0

    @property
    def passages(self) -> int:
        with self._corpus.open("rb") as lines:
            return sum(1 for _ in lines)

    @cached_property
    def base_url(self) -> str:
        """An endpoint that has given every answer once, so that giving it again is cheap."""
        url = self._opened.enter_context(simulated_endpoint("--latency", str(LATENCY_S), "--canned"))
        self._finish(self._start("warm", "--base-url", url))
        return url

    def processes(self, ranks: int, *words: str) -> _Grown:
        """The ranks as plain processes at the same time."""
        run, began = self._new(), time.monotonic()
        started = [self._start(run, "--shard", f"{rank}/{ranks}", *words) for rank in range(ranks)]
        for each in started:
            self._finish(each)
        return self._grown(run, ranks, time.monotonic() - began)

    def ray(self, ranks: int, *words: str) -> _Grown:
        run, began = self._new(), time.monotonic()
        self._finish(self._start(run, "--on", "ray", "--workers", str(ranks), *words))
        return self._grown(run, ranks, time.monotonic() - began)

    @cached_property
    def endless(self) -> dict[int, _Grown]:
        """Ranks whose teacher answers at once, in their own process: as fast as the cores are."""
        self._warm_index()
        return {ranks: self.processes(ranks) for ranks in RANKS}

    @cached_property
    def over_http(self) -> dict[int, _Grown]:
        return {ranks: self.processes(ranks, "--base-url", self.base_url) for ranks in RANKS}

    @cached_property
    def on_ray(self) -> dict[int, _Grown]:
        return {ranks: self.ray(ranks, "--base-url", self.base_url) for ranks in RANKS}

    def _warm_index(self) -> None:
        self._finish(self._start(self._new(), "--limit", "1"))

    def _new(self) -> str:
        self._runs += 1
        return f"run-{self._runs}"

    def _start(self, run: str, *words: str) -> subprocess.Popen[str]:
        own = ["--questions", str(self._questions), "--corpus", str(self._corpus), "--index", "index", "--run", run]
        own += ["--model", "offline", "--concurrency", str(CONCURRENCY)]
        own += [] if "--limit" in words else ["--limit", str(QUESTIONS)]
        return subprocess.Popen(
            [sys.executable, "-m", "reasonrag", "generate", *own, *words],
            cwd=self.scratch,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _finish(self, process: subprocess.Popen[str]) -> None:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"a rank ended with status {process.returncode}:\n{said}")

    def _grown(self, run: str, ranks: int, wall_s: float) -> _Grown:
        folders = list((self.scratch / run / "ranks").iterdir())
        summaries: list[dict[str, Any]] = [json.loads((each / "summary.json").read_bytes()) for each in folders]
        return _Grown(
            ranks,
            answers=sum(each["calls"] for each in summaries),
            session_s=max(each["session_seconds"] for each in summaries),
            wall_s=wall_s,
            journal_bytes=sum((each / "journal.jsonl").stat().st_size for each in folders),
            searches=sum(_searches(tree) for each in folders for tree in read_rollouts(each / "rollouts.jsonl")),
        )

    @cached_property
    def searches_per_s(self) -> float:
        """Of one retrieval server over this corpus, asked by one client for passages to different questions."""
        words = [sys.executable, "-m", "reasonrag", "index", "serve", "--index", "index", "--port", "0"]
        with subprocess.Popen(words, cwd=self.scratch, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None  # noqa: S101 - for the type checker; it is a pipe
            url = server.stdout.readline().split()[2]
            queries = [json.loads(line)["question"] for line in self._questions.read_bytes().splitlines()]
            with _processes(1) as pool:
                rate = pool.submit(_search_all, url, queries).result()
            server.terminate()
        return rate


def _ranks(bench: _Bench) -> Iterator[str]:
    """Answers per second against the number of ranks, and what Ray adds to plain processes."""
    rows = [
        *(("teacher in the process, plain processes", each, bench.endless[1]) for each in bench.endless.values()),
        *(("endpoint, plain processes", each, bench.over_http[1]) for each in bench.over_http.values()),
        *(("endpoint, Ray", each, bench.over_http[1]) for each in bench.on_ray.values()),
    ]
    yield from table(
        f"One run of {QUESTIONS} questions of HotpotQA by ranks on one machine of {os.cpu_count()} cores, up to "
        f"{CONCURRENCY} requests in flight per rank, {1000 * LATENCY_S:.0f} ms latency (answers/s: from the first "
        "request of the slowest rank to its last answer; wall: with start, Ray and merging)",
        {
            "": [name for name, _, _ in rows],
            "ranks": [f"{each.ranks}" for _, each, _ in rows],
            "answers": [f"{each.answers:,}" for _, each, _ in rows],
            "answers/s": [f"{each.rate:,.0f}" for _, each, _ in rows],
            "times one rank": [f"{each.rate / one.rate:.2f}" for _, each, one in rows],
            "wall s": [f"{each.wall_s:.1f}" for _, each, _ in rows],
        },
    )


def _searches(tree: RolloutRecord) -> int:
    return len({each.content for each in tree.nodes if each.action_type == "query"})


def _search_all(url: str, queries: list[str]) -> float:
    """Searches per second, all of them waiting at once."""

    async def search() -> float:
        retriever = await open_remote(url, token=None)
        began = time.monotonic()
        await asyncio.gather(*(retriever.retrieve(each, 3) for each in queries))
        seconds = time.monotonic() - began
        await retriever.close()
        return len(queries) / seconds

    return asyncio.run(search())


def _paper(bench: _Bench) -> Iterator[str]:
    """One to a hundred machines, by the constants measured above."""
    one = bench.over_http[1]
    per_rank, bytes_per_answer = one.rate, one.journal_bytes / one.answers
    searches, searched = one.searches / one.answers, bench.searches_per_s
    machines = (1, 10, 100)
    ranks = [each * (CORES - 1) for each in machines]
    answers = [each * per_rank for each in ranks]
    yield from table(
        f"On paper, not measured: machines of {CORES} cores with a rank on each but one, {per_rank:,.0f} answers/s a "
        f"rank, {bytes_per_answer:,.0f} bytes of journal an answer, a shared file system that takes "
        f"{DISK_BYTES_S / 1e6:.0f} MB/s (assumed), {searches:.2f} searches an answer, retrieval servers that answer "
        f"{searched:,.0f} searches/s each over a corpus of {bench.passages:,} passages (measured)",
        {
            "machines": [f"{each}" for each in machines],
            "ranks": [f"{each:,}" for each in ranks],
            "answers/s, if teachers and retrievers keep up": [f"{each:,.0f}" for each in answers],
            "retrieval servers needed": [f"{each * searches / searched:,.0f}" for each in answers],
            "journals, MB/s": [f"{each * bytes_per_answer / 1e6:,.1f}" for each in answers],
            "shared file system, share used": [f"{each * bytes_per_answer / DISK_BYTES_S:.1%}" for each in answers],
        },
    )


def _processes(number: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn"))


PARTS: dict[str, Callable[[_Bench], Iterator[str]]] = {"ranks": _ranks, "paper": _paper}


if __name__ == "__main__":
    typer.run(main)
