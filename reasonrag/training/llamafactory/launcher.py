"""LLaMA-Factory as a child process: its command and environment, its output, and how it is terminated.

Decides what is logged: all output, of progress bars only the last state. Does not know what lines mean; see
`progress`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from preference.export.files import open_private
from reasonrag.errors import InputError, ReasonragError
from reasonrag.redaction import redact
from reasonrag.training.llamafactory.inspection import environment_of
from reasonrag.training.metrics import read_object
from reasonrag.training.progress import LogParser, TrainingWatcher, failure_hint, read_appended_lines
from reasonrag.training.settings import PORT

LAST_LINES = 40
"""Output lines kept for a failure message."""
_GRACE = 20.0
"""Seconds a child has to exit after a signal, before the next stronger one."""
_TICK = 0.5


@dataclass(frozen=True)
class Launch:
    """Machines and processes of a training. master: host and port of machine 0."""

    nodes: int = 1
    node_rank: int = 0
    master: tuple[str, int] | None = None
    gpus_per_node: int | None = None


class TrainingFailed(ReasonragError):
    """LLaMA-Factory exited with an error."""

    cause = "training"


def parse_master(text: str | None, nodes: int) -> tuple[str, int] | None:
    """Parses HOST or HOST:PORT. Raises InputError for anything else, and if several nodes have none."""
    if text is None:
        if nodes > 1:
            raise InputError("--nodes needs --master HOST[:PORT], the address of machine 0 for the others")
        return None
    host, _, port = text.rpartition(":") if text.count(":") == 1 else (text, "", str(PORT))
    if (
        not host
        or any(each.isspace() or each in "/@" for each in text)
        or not port.isdigit()
        or not 0 < int(port) < 2**16
    ):
        raise InputError(f"--master {text}: it takes HOST or HOST:PORT")
    return host, int(port)


def launch_variables(launch: Launch, *, deepspeed: bool, gpus: int) -> dict[str, str]:
    """Environment variables that LLaMA-Factory's launcher reads.

    DeepSpeed and several machines need torchrun, which LLaMA-Factory starts by itself only for more than one GPU; on a
    machine without a GPU it would start no process at all.
    """
    found = {}
    if launch.nodes > 1 or deepspeed or (launch.gpus_per_node or 1) > 1:
        found["FORCE_TORCHRUN"] = "1"
        if launch.gpus_per_node or not gpus:
            found["NPROC_PER_NODE"] = str(launch.gpus_per_node or 1)
    if launch.nodes > 1 and launch.master:
        host, port = launch.master
        found |= {
            "NNODES": str(launch.nodes),
            "NODE_RANK": str(launch.node_rank),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }
    return found


def cli_command(python: Path, verb: str, file: Path, overrides: Mapping[str, str]) -> list[str]:
    """`llamafactory-cli VERB FILE key=value ..`"""
    cli = python.with_name("llamafactory-cli")
    start = [str(cli)] if cli.is_file() else [str(python), "-m", "llamafactory.cli"]
    return [*start, verb, str(file), *(f"{key}={value}" for key, value in overrides.items())]


def check_no_spaces(command: list[str], environment: Mapping[str, str], gpus: int) -> None:
    """Raises InputError for a path with a space if torchrun is used: LLaMA-Factory splits that command at spaces."""
    torchrun = "FORCE_TORCHRUN" in environment or gpus > 1
    spaced = next((word for word in command[2:] if len(word.split()) != 1), None)
    if torchrun and spaced:
        raise InputError(f"a path with a space cannot be given to torchrun: {spaced!r}; choose another --out")


def run_child(
    command: list[str],
    *,
    python: Path,
    environment: Mapping[str, str],
    log: Path,
    heard: Callable[[str], None],
    tick: Callable[[], None],
    holds: int | None = None,
    tokens: Sequence[str] = (),
) -> int:
    """Run a command to its end, its full output appended to `log`; returns its exit status.

    heard: called with each line. tick: called every half second. holds: a descriptor the child keeps open while it
    lives. tokens: how the names of secrets begin that it needs. On Ctrl-C or SIGTERM the child and its own children are
    terminated, and KeyboardInterrupt is raised.
    """
    env = environment_of(python, *tokens) | {"PYTHONUNBUFFERED": "1"} | dict(environment)
    with open_private(log, "ab") as written, _sigterm_as_interrupt():
        written.write(f"$ {redact(' '.join(command))}\n".encode())
        written.flush()
        child = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if holds is None else (holds,),
        )
        try:
            _read_output(child, written, heard, tick)
            return child.wait()
        except BaseException:
            _terminate(child, written)
            raise
        finally:
            if child.stdout:
                child.stdout.close()


def run_watched(
    command: list[str], who: str, watcher: TrainingWatcher, *, log: Path, follow: Path | None = None, **child: Any
) -> None:
    """Run a training or an export to its end, and tell `watcher` how far it is. who: runs, in words. follow: the
    trainer's log of steps. child: see `run_child`.

    Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt.
    """
    listener = LogParser(watcher, keep=LAST_LINES)
    listener.standing.phase = f"starting {who}"
    read = follow.stat().st_size if follow and follow.is_file() else 0

    def tick() -> None:
        nonlocal read
        if follow:
            read = read_appended_lines(follow, read, lambda line: listener.reached(read_object(line)))
            watcher.stands(listener.standing, logged=False)

    try:
        status = run_child(command, log=log, heard=listener.heard, tick=tick, **child)
    finally:
        watcher.ended()
    if status != 0:
        last = [line for line in listener.last if line.strip()]
        hint = failure_hint(last)
        shown = "\n".join(f"  {line[:400]}" for line in last[-12:])
        raise TrainingFailed(
            f"{who} exited with status {status}. {f'What to do: {hint}. ' if hint else ''}Full output: {log}\n"
            f"Last lines:\n{shown}"
        )


def _read_output(
    child: subprocess.Popen[bytes], written: BinaryIO, heard: Callable[[str], None], tick: Callable[[], None]
) -> None:
    assert child.stdout is not None  # noqa: S101 - it was asked for
    lines = _LineSplitter(written, heard)
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        ticked = time.monotonic()
        while True:
            if ready.select(_TICK):
                block = os.read(child.stdout.fileno(), 1 << 16)
                if not block:
                    break
                lines.feed(block)
            elif child.poll() is not None:
                break  # a grandchild may keep the pipe open
            if time.monotonic() - ticked >= _TICK:
                ticked = time.monotonic()
                tick()
    lines.end()
    tick()


class _LineSplitter:
    """Splits bytes into lines. What a carriage return overwrites, as in progress bars, is dropped."""

    def __init__(self, written: BinaryIO, heard: Callable[[str], None]) -> None:
        self._written = written
        self._heard = heard
        self._rest = b""

    def feed(self, block: bytes) -> None:
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            self._say(line)
        head, bar, tail = self._rest.rpartition(b"\r")
        if bar and tail:
            self._rest = tail
        elif bar:
            self._rest = head.rpartition(b"\r")[2] + bar

    def end(self) -> None:
        if self._rest.strip():
            self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        text = redact(line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace"))
        self._written.write(f"{text}\n".encode())
        self._written.flush()
        self._heard(text)


def _terminate(child: subprocess.Popen[bytes], written: BinaryIO) -> None:
    """Interrupt, terminate, then kill the child; it leads its own session, so its children are signalled too."""
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, sent)
        deadline = time.monotonic() + _GRACE
        with contextlib.suppress(KeyboardInterrupt):  # pressed again: go on with the next
            while time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    # the pipe is read, or a child that still talks would never end
                    rest, _ = child.communicate(timeout=_TICK)
                    written.write(redact((rest or b"").decode(errors="replace")).encode())
                    break
        if child.poll() is not None:
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # those that it left behind
    written.write(b"ended from outside\n")


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, which a batch system sends, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
