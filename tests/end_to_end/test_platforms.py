"""The main job without what only Linux has: a run is killed or interrupted, resumed, and its pairs are made.

Simulated on the system at hand by taking away what macOS and Windows lack. What they do otherwise (their file systems,
how Windows locks and replaces files) is not seen here. Locks are filelock's, which brings those of Windows.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reasonrag.files import ROLLOUTS
from tests.endpoints.simulator import EndpointBehaviour
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Stage
from tests.helpers.processes import until

MACOS = """
import os
del os.fdatasync, os.posix_fadvise, os.sched_getaffinity
"""
WINDOWS = """
import asyncio, os, signal, sys
import filelock
for missing in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[missing] = None  # to import it fails
for missing in (
    "fchmod fdatasync fork forkpty geteuid getuid killpg posix_fadvise pread pwrite sched_getaffinity setsid sysconf "
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK"
).split():
    delattr(os, missing)
del signal.SIGKILL, signal.SIGHUP, signal.SIGALRM
def add_signal_handler(*_):
    raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler
"""
REASONRAG = """
import sys
from reasonrag.cli import run
sys.exit(run(sys.argv[1:]))
"""
JOB = ("generate", "--dataset", "atlas", "--limit", 8, "--model", "offline", "--run", "runs/a")


class On:
    """A command on another system, running. Its outputs go to files, so that no pipe fills up."""

    def __init__(self, system: str, *words: object) -> None:
        self._err = Path(f"err-{words[0]}")
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", system + REASONRAG, *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
            )  # fmt: skip

    @property
    def err(self) -> str:
        return self._err.read_text("utf-8")

    def status(self) -> int:
        return self.process.wait()


@pytest.mark.parametrize(
    ("system", "stop"), [(MACOS, signal.SIGKILL), (WINDOWS, signal.SIGINT)], ids=["macOS, killed", "Windows, Ctrl-C"]
)
def test_a_stopped_run_is_resumed_and_gives_the_pairs_of_this_system(
    system: str, stop: signal.Signals, reasonrag: Reasonrag
) -> None:
    rollouts = Path("runs/a", ROLLOUTS)

    def hold_after_a_tree(number: int) -> None:
        if rollouts.exists() and rollouts.stat().st_size:
            stage.hold_from(number)

    stage = Stage(EndpointBehaviour(), arrived=hold_after_a_tree)
    with stage.open():
        running = On(system, *JOB, "--base-url", stage.base_url, "--concurrency", 2)
        stage.held.wait()
        running.process.send_signal(stop)
        until(lambda: running.process.poll() is not None or "requests in flight" in running.err)
        stage.release()
        assert running.status() == (130 if stop == signal.SIGINT else -signal.SIGKILL), running.err
    assert 0 < rollouts.read_bytes().count(b"\n") < 8
    for words in (JOB, ("pairs", "runs/a", "--out", "data/a"), ("view", "data/a", "--out", "view.html")):
        running = On(system, *words)
        assert running.status() == 0, running.err
    assert reasonrag(*JOB[:-1], "runs/b").status == 0
    assert rollouts.read_bytes() == Path("runs/b", ROLLOUTS).read_bytes()
    assert reasonrag("pairs", "runs/b", "--out", "data/b").status == 0
    for name in ("RAG_ProGuide.json", "dropped.jsonl"):
        assert Path("data/a", name).read_bytes() == Path("data/b", name).read_bytes()


def test_a_failed_start_leaves_nothing_on_windows() -> None:
    running = On(WINDOWS, *JOB[:-1], "runs/new", "--base-url", "http://127.0.0.1:1/v1")
    assert running.status() == 2
    assert "cannot reach" in running.err
    assert not Path("runs").exists()
