"""A run of ranks on Ray whose processes are killed at random moments, beside an undisturbed run of one process.

SIGKILL hits a worker of Ray, the driver (which is then started again by the same command), or the server
of the index (which is then started again). At the end rollouts.jsonl must have the same bytes, and every
draw must be in the journals once: what was recorded is not paid for again. Answers that were on their way to the disk
when their process was killed are delivered again; they are counted.

    python benchmarks/chaos.py --kills 20 [--append benchmarks/RESULTS.md]
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Optional, Self

import orjson
import typer
from main_job import simulated_endpoint
from reporting import publish, table

from reasonrag.errors import CapReached

TARGETS = ("worker", "driver", "retriever")
RANKS, CONCURRENCY = 2, 8
LATENCY_S = 0.02
PAUSE_S = (0.2, 1.5)
"""Between two kills, once the run goes on."""
PATIENCE_S = 120.0
RUN, WHOLE = "ranks", "whole"


def main(
    kills: Annotated[int, typer.Option(help="Processes to kill")] = 20,
    questions: Annotated[int, typer.Option(help="Questions of atlas")] = 120,
    seed: Annotated[int, typer.Option(help="Of the moments and targets")] = 0,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Kill, and report."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        whole = disturb(Path(first), kills=kills, questions=questions, seed=seed)
        cap = sum(whole.drawn.values()) // 2
        capped = disturb(Path(second), kills=kills // 2, questions=questions, seed=seed, max_calls=cap)
    publish(chain(_report(whole), _report_of_cap(capped, cap)), append)
    if not whole.same or whole.recorded_twice or sum(capped.drawn.values()) > cap:
        raise typer.Exit(1)


@dataclass
class Disturbance:
    """What was killed, and what came of it.

    same: rollouts.jsonl has the bytes of the undisturbed run. drawn: how often each draw is in the journals. repeated:
    answers that the endpoint delivered again, without the trial request of each start.
    """

    killed: Counter[str] = field(default_factory=Counter)
    same: bool = False
    drawn: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    repeated: int = 0
    seconds: float = 0.0

    @property
    def recorded_twice(self) -> int:
        """Draws in the journals beyond one each."""
        return self.drawn.total() - len(self.drawn)


def disturb(
    folder: Path,
    *,
    kills: int,
    questions: int,
    seed: int = 0,
    max_calls: int | None = None,
) -> Disturbance:
    """Explore questions by ranks and kill so many of their processes, every target in turn; in this folder.
    RAY_ADDRESS may name a cluster on this machine. max_calls: a cap that stops the run."""
    found, dice, began = Disturbance(), random.Random(seed), time.monotonic()
    order = [TARGETS[number % len(TARGETS)] for number in range(kills)]
    dice.shuffle(order)
    _run(folder, "generate", "--dataset", "atlas", "--limit", 1, "--run", "first")  # writes atlas
    corpus = next((folder / "indexes").rglob("corpus.jsonl"))
    _run(folder, "index", "build", "--corpus", corpus, "--encoder", "hashing", "--out", "index")
    asked = ["generate", "--dataset", "atlas", "--limit", questions, "--model", "offline"]
    _run(folder, *asked, "--index", "index", "--run", WHOLE)
    with ExitStack() as opened:
        endpoint = opened.enter_context(simulated_endpoint("--latency", str(LATENCY_S)))
        server = opened.enter_context(_Server(folder))
        words = [*asked, "--base-url", endpoint, "--retriever", server.url, "--run", RUN]
        words += ["--on", "ray", "--workers", RANKS, "--concurrency", CONCURRENCY]
        words += ["--max-calls", max_calls] if max_calls else []
        driver = opened.enter_context(_Driver(folder, words))
        for target in order:
            driver.progress()
            time.sleep(dice.uniform(*PAUSE_S))
            if driver.is_over():
                break
            if target == "retriever":
                server.kill()
            elif target == "driver":
                driver.kill()
            else:
                found_one = driver.wait_for_worker(dice)
                if found_one is None:
                    break
                os.kill(found_one, signal.SIGKILL)
            found.killed[target] += 1
        status = driver.wait()
        if status != (CapReached.exit_status if max_calls else 0):
            raise RuntimeError(f"the run ended with status {status}:\n{driver.said()}")
        with urllib.request.urlopen(f"{endpoint.removesuffix('/v1')}/stats") as answer:  # noqa: S310 - our own
            delivered = json.load(answer)["delivered"]
    if not max_calls:
        mine, theirs = (folder / each / "rollouts.jsonl" for each in (RUN, WHOLE))
        found.same = mine.read_bytes() == theirs.read_bytes()
    for journal in (folder / RUN).glob("ranks/*/journal.jsonl"):
        found.drawn.update(key for line in journal.read_bytes().splitlines() for key in orjson.loads(line)["keys"])
    again = found.killed["worker"] + RANKS * found.killed["driver"]  # ranks that were started once more
    found.answers, found.repeated = delivered["answers"], delivered["repeated"] - (RANKS - 1) - again
    found.seconds = time.monotonic() - began
    return found


# -- the processes ---------------------------------------------------------------------------------------------


def _command(words: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "reasonrag", *map(str, words)]


def _run(folder: Path, *words: object) -> None:
    done = subprocess.run(_command(words), cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with status {done.returncode}:\n{done.stderr}")


class _Server:
    """The server of the index; started again on its port when killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._words = ["index", "serve", "--port", port, "--index", "index"]

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes the pipe, too

    def _start(self) -> None:
        self._process = subprocess.Popen(
            _command(self._words), cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - for the type checker; it is a pipe
        if not self._process.stdout.readline():
            raise RuntimeError(f"{' '.join(map(str, self._words))} did not start")

    def kill(self) -> None:
        self._end()
        self._start()


class _Driver:
    """`generate --on ray`, started again when it is killed."""

    def __init__(self, folder: Path, words: Sequence[object]) -> None:
        self._folder, self._words = folder, words
        self._log = folder / "driver.log"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(_command(self._words), cwd=self._folder, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL; the next one is started once the workers have noticed, as two may not write one rank."""
        self._process.kill()
        self._process.wait()
        _until(lambda: self.find(None) is None)
        self._start()

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        return self._process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def progress(self) -> None:
        """Wait until an answer was recorded that was not there before, or the run is over."""
        before = self._recorded()
        _until(lambda: self.is_over() or self._recorded() > before)

    def _recorded(self) -> int:
        return sum(each.stat().st_size for each in (self._folder / RUN).glob("ranks/*/journal.jsonl"))

    def wait_for_worker(self, dice: random.Random) -> int | None:
        """`find`, as soon as there is one; None once the run is over."""
        _until(lambda: self.is_over() or self.find(None) is not None)
        return self.find(dice)

    def find(self, dice: random.Random | None) -> int | None:
        """A process that has a journal of a rank open; None without one."""
        files = [*(self._folder / RUN).resolve().glob("ranks/*/journal.jsonl")]
        holders = sorted(pid for pid, held in _open_files() if held in files)
        if not holders:
            return None
        return dice.choice(holders) if dice else holders[0]


def _open_files() -> Iterator[tuple[int, Path]]:
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            yield int(each.parts[2]), each.readlink()


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come about")
        time.sleep(0.02)


def _report(found: Disturbance) -> Iterator[str]:
    yield from table(
        f"A run of {RANKS} ranks on Ray, its retriever a server, killed at random moments",
        {
            "killed": [_killed(found)],
            "rollouts.jsonl": ["same bytes as one process" if found.same else "DIFFERENT"],
            "draws recorded twice": [f"{found.recorded_twice:,}"],
            "answers delivered": [f"{found.answers:,}"],
            "delivered again, as not yet on disk": [f"{found.repeated:,}"],
            "s": [f"{found.seconds:.0f}"],
        },
    )


def _report_of_cap(found: Disturbance, cap: int) -> Iterator[str]:
    yield from table(
        "The same with a cap that stops the run, of which each rank has its part",
        {
            "killed": [_killed(found)],
            "--max-calls": [f"{cap:,}"],
            "draws in the journals": [f"{found.drawn.total():,}"],
            "recorded twice": [f"{found.recorded_twice:,}"],
            "s": [f"{found.seconds:.0f}"],
        },
    )


def _killed(found: Disturbance) -> str:
    return ", ".join(f"{found.killed[name]} {name}" for name in TARGETS)


if __name__ == "__main__":
    typer.run(main)
