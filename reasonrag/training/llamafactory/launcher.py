"""LLaMA-Factory as a child process: its command and environment, its output, and how it is terminated.

Decides what is logged: all output, of progress bars the last state. Does not know what lines mean; see `metrics`.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from preference.export.private_files import open_private
from reasonrag.errors import InputError, ReasonragError
from reasonrag.progress import JobWatcher
from reasonrag.redaction import redact
from reasonrag.training.llamafactory.inspection import environment_of
from reasonrag.training.metrics import TrainingProgress, failure_hint

PORT: Final = 29500
"""torchrun's own default for the first of several machines."""
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

    @classmethod
    def of(
        cls, nodes: int, node_rank: int | None, master: str | None, gpus_per_node: int | None, *, here: bool
    ) -> Launch:
        """By the flags of `train`. here: whether this is one of the machines; a batch script tells each its number and
        the first one's address. Raises InputError."""
        if here and nodes > 1 and master is None:
            raise InputError("--nodes needs --master HOST[:PORT], the address of machine 0 for the others")
        if here and nodes > 1 and node_rank is None:
            raise InputError("--nodes needs --node-rank, the number of this machine: 0 on the first, 1 on the next")
        if (node_rank or 0) >= nodes:
            raise InputError(f"--node-rank {node_rank}: of {nodes} machines the last is {nodes - 1}")
        if master is None:
            return cls(nodes, node_rank or 0, None, gpus_per_node)
        host, _, port = master.rpartition(":") if master.count(":") == 1 else (master, "", str(PORT))
        if not re.fullmatch(r"[^\s/@]+", host) or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 2**16:
            raise InputError(f"--master {master}: it takes HOST or HOST:PORT")
        return cls(nodes, node_rank or 0, (host, int(port)), gpus_per_node)


class TrainingFailed(ReasonragError):
    """LLaMA-Factory exited with an error."""

    cause = "training"


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
        found |= {"NNODES": str(launch.nodes), "NODE_RANK": str(launch.node_rank)}
        found |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    return found


def cli_command(python: Path, verb: str, file: Path, overrides: Mapping[str, str]) -> list[str]:
    """`llamafactory-cli VERB FILE key=value ..`"""
    cli = python.with_name("llamafactory-cli")
    start = [str(cli)] if cli.is_file() else [str(python), "-m", "llamafactory.cli"]
    return [*start, verb, str(file), *(f"{key}={value}" for key, value in overrides.items())]


def run_child(
    command: list[str],
    *,
    python: Path,
    environment: Mapping[str, str],
    log: Path,
    last: deque[str],
    tick: Callable[[], None],
    holds: int | None = None,
    tokens: Sequence[str] = (),
) -> int:
    """Run a command to its end, its full output appended to `log`; returns its exit status. Raises OSError where the
    log cannot be written, once the child has ended.

    last: gets each line that is not blank. tick: called every half second. holds: a descriptor the child keeps open
    while it lives. tokens: how the names of secrets begin that it needs. On Ctrl-C or SIGTERM the child and its own
    children are terminated, and KeyboardInterrupt is raised.
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
        lost = list[OSError]()
        reader = threading.Thread(target=_keep_output, args=(child, written, last, lost), daemon=True)
        reader.start()
        try:
            return _status(child, tick, lost)
        except BaseException:
            _terminate(child)
            raise
        finally:
            reader.join(4 * _TICK)  # a grandchild may keep the pipe open
            tick()


def _status(child: subprocess.Popen[bytes], tick: Callable[[], None], lost: Sequence[OSError]) -> int:
    """Its exit status, once it has ended. Raises what `lost` gets meanwhile."""
    while not lost:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(_TICK)
        tick()
    raise lost[0]


def _keep_output(child: subprocess.Popen[bytes], written: BinaryIO, last: deque[str], lost: list[OSError]) -> None:
    """Its lines as they come, without keys. What a carriage return overwrites, as in progress bars, is left out. lost:
    gets why a line could not be written; the child may go on until it is ended."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    with io.TextIOWrapper(child.stdout, "utf-8", "replace", newline="") as text, suppress(ValueError):  # closed by us
        for line in text:
            if line.endswith("\r"):
                continue
            told = redact(line.rstrip("\r\n"))
            try:
                written.write(f"{told}\n".encode())
                written.flush()
            except OSError as error:
                lost.append(error)
            last.extend([told] if told.strip() else [])


def run_watched(
    command: list[str], who: str, watcher: JobWatcher, *, log: Path, follow: Path | None = None, **child: Any
) -> None:
    """Run a training or an export to its end, and tell `watcher` how far it is. who: runs, in words. follow: the
    trainer's log of steps. child: see `run_child`.

    Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt.
    """
    progress, last = TrainingProgress(follow, watcher), deque[str](maxlen=LAST_LINES)
    try:
        status = run_child(command, log=log, last=last, tick=progress.look, **child)
    finally:
        progress.say()
    if status != 0:
        hint = failure_hint(last)
        shown = "\n".join(f"  {line[:400]}" for line in list(last)[-12:])
        raise TrainingFailed(
            f"{who} exited with status {status}. {f'What to do: {hint}. ' if hint else ''}Full output: {log}\n"
            f"Last lines:\n{shown}"
        )


def _terminate(child: subprocess.Popen[bytes]) -> None:
    """Interrupt, terminate, then kill the child; it leads its own session, so its children are signalled too."""
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, sent)
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # pressed again: go on with the next
            child.wait(_GRACE)
        if child.poll() is not None:
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # those that it left behind


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, which a batch system sends, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
