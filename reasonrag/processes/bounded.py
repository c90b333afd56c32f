"""A process for what a stranger's file may do: it works on one thing at a time, within limits of time and memory.

A document is a program for its parser, and a chat template is one anyway: some take minutes, gigabytes, or the process
down. So the process is ended where it exceeds a limit, and the next thing starts another. Knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

LOAD_S = 300.0
"""For the process to start, and to read from a slow disk what it needs."""
_ASK_S = 0.05
_SHOWN = 500
_MOST_BYTES = 1 << 28
"""Of an answer, where the system limits no memory: 20 million characters as JSON escapes them, and more."""
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reasonrag.processes.bounded import main; main()"


class WorkError(Exception):
    """Why there is no answer: what the work raised."""


class StartError(WorkError):
    """Why there is no process that could answer."""


class LimitError(WorkError):
    """What the process did: it exceeded a limit, or crashed."""


class BoundedProcess:
    """A process that works on what it is given.

    start: a module's function, called in the process with `arguments`; returns what makes an answer of each thing.
    Arguments, things and answers are JSON. For each thing there are so many seconds by the clock, seconds of the
    processor (0: any) and bytes beyond those that it has when it has started; Windows knows neither of the latter.
    """

    def __init__(
        self,
        start: Callable[..., Callable[[Any], Any]],
        *arguments: object,
        seconds: float,
        memory_bytes: int,
        environment: Mapping[str, str],
        cpu_s: float = 0.0,
    ) -> None:
        self._told = [start.__module__, start.__name__, arguments, memory_bytes, cpu_s]
        self._seconds, self._memory_bytes, self._environment = seconds, memory_bytes, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._free = asyncio.Lock()

    def ask(self, thing: object) -> Any:
        """The answer. One at a time. Raises WorkError."""
        process = self._process or self._started()
        return self._exchange(process, json.dumps(thing).encode() + b"\n", self._seconds)

    async def reply(self, thing: object) -> Any:
        """`ask` for coroutines, each in its turn. Cancelling ends the process."""
        async with self._free:
            asking = asyncio.ensure_future(asyncio.to_thread(self.ask, thing))
            asking.add_done_callback(lambda each: each.cancelled() or each.exception())  # marked as retrieved
            try:
                return await asyncio.shield(asking)
            finally:
                while not asking.done():  # it may have been about to start
                    self.close()
                    await asyncio.wait([asking], timeout=_ASK_S)

    def close(self) -> None:
        """End the process; from any thread. Who waits for its answer gets a LimitError."""
        if process := self._process:
            self._end(process)

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _BOOT, str(Path(__file__).parents[2]), json.dumps(self._told)]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env=self._environment)
        self._process = process
        try:
            self._exchange(process, b"", LOAD_S)
        except WorkError as error:
            self._end(process)
            raise StartError(f"its process {error}" if isinstance(error, LimitError) else str(error)) from error
        return process

    def _exchange(self, process: subprocess.Popen[bytes], said: bytes, seconds: float) -> Any:
        """What the process says next. It ends where that is not known: its late answer must not reach another ask."""
        stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        late, line = threading.Event(), b""

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        try:
            timer.start()
            with contextlib.suppress(BrokenPipeError, ValueError):  # it crashed; or was closed by another thread
                stdin.write(said)
                stdin.flush()
                line = stdout.readline(_MOST_BYTES)
        except BaseException:
            self._end(process)
            raise
        finally:
            timer.cancel()
        if late.is_set() or not line.endswith(b"\n"):
            self._end(process)
            raise LimitError(f"took more than {seconds:g} s" if late.is_set() else "crashed")
        answer = json.loads(line)
        if answer is None:
            self._end(process)  # what it took, it may keep
            raise LimitError(f"took more than {self._memory_bytes >> 20:,} MiB of memory")
        if "error" in answer:
            raise WorkError(answer["error"])
        return answer["answer"]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._process is process:
            self._process = None
        process.kill()
        with contextlib.suppress(BrokenPipeError), process:  # closes its pipes and waits
            pass


# -- the process -------------------------------------------------------------------------------------------------


def main() -> None:
    """Starts the work that it is told, then reads a line for each thing, until stdin ends. Answers each with a line:
    the answer, the error that was raised, or null if it took too much memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the command
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, name, arguments, memory_bytes, cpu_s = json.loads(sys.argv[1])
    work: Callable[[Any], Any] | None = None
    for line in itertools.chain(["null"], sys.stdin):
        try:
            said: dict[str, Any] | None = {"answer": None}
            if work is None:
                work = getattr(import_module(module), name)(*arguments)
                limit_memory(memory_bytes)
            else:
                _limit_time(cpu_s)
                said = {"answer": work(json.loads(line))}
        except MemoryError:
            said = None if work else {"error": "not enough memory"}
        except Exception as error:  # noqa: BLE001 - whatever the work raises is why there is no answer
            said = {"error": f"{type(error).__name__}: {error}"[:_SHOWN]}
        _limit_time(0)
        print(json.dumps(said), file=answers, flush=True)


def _limit_time(seconds: float) -> None:
    """End this process by SIGPROF after so many CPU seconds; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def limit_memory(more: int) -> None:
    """Leave this process so many bytes beyond what it has."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows; macOS; a lower limit holds already
        import resource

        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))
