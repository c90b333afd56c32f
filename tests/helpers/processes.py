"""`reasonrag` commands as processes of their own that begin at once.

A fresh Python takes most of a second to import what a command needs. So one server, started when the first command is,
imports it once, and every command is a fork of it: with its own working directory, environment, files and signals, and
killed or interrupted like any other. What a fresh interpreter does is tested where that is the point.

    python tests/helpers/processes.py SOCKET  # the server; it ends when its stdin does
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias
from urllib.parse import urlsplit
from urllib.request import urlopen

PRELOADED = (
    "aiohttp",
    "bm25s",
    "jinja2",
    "numpy",
    "openai",
    "reasonrag.cli",
    "reasonrag.curation.audit.audit",
    "reasonrag.curation.import_published",
    "reasonrag.curation.pairs",
    "reasonrag.curation.review",
    "reasonrag.exploration.explore",
    "reasonrag.llm.endpoint.endpoint",
    "tests.endpoints.simulator",
    "reasonrag.publishing.publish",
    "yaml",
)
"""Nothing that reads the environment while it is imported."""
PATIENCE_S = 500.0


class Command:
    """`reasonrag` with these words, running. Like subprocess.Popen, but its outputs go to files.

    module: what `python -m` runs. cwd, environment: its own; those of this process by default. file_limit: no file of
    it may grow beyond so many bytes, as on a full disk. terminal: a descriptor that is its stdin, stdout, stderr and
    controlling terminal.

    Of changes to files below its working directory: killed_at: it gets SIGKILL right before the change of this number,
    from 1, or the first one to the file of this name. snapshots: folder for copies of the working directory, 1, 2, ..,
    as SIGKILL would leave it right before each change to what is not hidden.
    """

    def __init__(
        self,
        *words: object,
        module: str = "reasonrag",
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        file_limit: int | None = None,
        killed_at: int | str | None = None,
        snapshots: Path | None = None,
        terminal: int | None = None,
    ) -> None:
        self.words = [module, *map(str, words)]
        self.returncode: int | None = None
        self._streams = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 - closed by __exit__
        self._ends: list[str] = []
        asked: dict[str, Any] = {
            "words": self.words,
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ) if environment is None else environment,
            "file_limit": file_limit,
            "killed_at": killed_at,
            "snapshots": snapshots and str(snapshots),
            "terminal": terminal is not None,
            "umask": os.umask(0),
        }
        os.umask(asked["umask"])
        given = [terminal] if terminal is not None else [each.fileno() for each in self._streams]
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        socket.send_fds(self._connection, [b"x"], given)
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self._answers = self._connection.makefile("rb")
        self.pid = int(self._answers.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Killed if it still runs."""
        if self.poll() is None:
            self.kill()
            self.wait()
        self._answers.close()
        self._connection.close()
        self._ends = ["", self.out, self.err]
        for each in self._streams:
            each.close()

    def poll(self) -> int | None:
        """Exit status, minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self._connection.setblocking(False)  # noqa: FBT003 - its name
            try:
                self._ended(self._connection.recv(64))
            except BlockingIOError:
                return None
            finally:
                self._connection.settimeout(None)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self._ended(self._connection.recv(64))
        assert self.returncode is not None
        return self.returncode

    def _ended(self, said: bytes) -> None:
        assert said, "the server of processes is gone"
        self.returncode = int(said)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its status is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @property
    def out(self) -> str:
        """Stdout so far."""
        return self._written(1)

    @property
    def err(self) -> str:
        return self._written(2)

    def _written(self, stream: int) -> str:
        if self._ends:
            return self._ends[stream]
        descriptor = self._streams[stream].fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def first_line(self) -> str:
        """Of stdout, when it is there."""
        until(lambda: "\n" in self.out or self.poll() is not None)
        return self.out.partition("\n")[0]


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread or process is about to do."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def finished(*words: object, timeout: float = PATIENCE_S, **options: Any) -> subprocess.CompletedProcess[str]:
    """What such a command left when it had ended."""
    return completed(Command(*words, **options), timeout=timeout)


def completed(running: Command, *, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    with running:
        status = running.wait(timeout)
        return subprocess.CompletedProcess(running.words, status, running.out, running.err)


@contextmanager
def simulated_endpoint(*habits: object) -> Iterator[str]:
    """Base URL of an endpoint with these flags, in a process of its own."""
    with Command("--port", 0, *habits, module="tests.endpoints") as server:
        yield server.first_line().split()[2]


def stats(base_url: str) -> dict[str, Any]:
    """What such an endpoint counted."""
    with urlopen(f"http://{urlsplit(base_url).netloc}/stats") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@functools.cache
def _server() -> str:
    """Address of the server's socket; it is started once for this process."""
    address = tempfile.mkdtemp(prefix="reasonrag-commands-") + "/socket"
    server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    server.stdout.close()
    atexit.register(lambda stdin: (stdin.close(), server.wait()), server.stdin)
    return address


# -- the server ------------------------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Fork a keeper for every connection, until stdin ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the tests is meant for the commands
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass  # a keeper whose command has ended
            if 0 in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                keep(connection)
            connection.close()


def keep(connection: socket.socket) -> NoReturn:
    """Fork the command, tell its process id, and when it has ended its status."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    asked = json.loads(connection.makefile("rb").readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        os._exit(command(asked, streams))
    for each in streams:
        os.close(each)
    connection.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):  # its waiter is gone
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def command(asked: dict[str, Any], streams: list[int]) -> int:
    """`python -m` with its words in this process; its exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["terminal"]:
        os.login_tty(streams[0])
    else:
        for number, each in enumerate(streams):
            os.dup2(each, number)
            os.close(each)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    if asked["file_limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as on a full disk: write() fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_limit"], asked["file_limit"]))
    if asked["killed_at"] is not None:
        sys.addaudithook(killer(asked["killed_at"], Path.cwd()))
    if asked["snapshots"] is not None:
        sys.addaudithook(photographer(Path(asked["snapshots"]), Path.cwd()))
    sys.argv = asked["words"]
    status: object = 0
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 - as an interpreter would
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status if isinstance(status, int) else int(status is not None)


Hook: TypeAlias = Callable[[str, tuple[Any, ...]], None]
CHANGES = {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
"""Audit events of a change to a file or folder; so is an `open` for writing."""


def killer(moment: int | str, folder: Path) -> Hook:
    """An audit hook, which the interpreter tells of every file operation before it is carried out."""
    number = 0

    def before(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        places = changed(event, arguments, folder)
        number += bool(places)
        if places and moment in (number, *map(str, places)):
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def photographer(snapshots: Path, folder: Path) -> Hook:
    """An audit hook that copies the folder before each change that is seen."""
    number, busy = 0, False

    def before(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number, busy
        if busy or all(
            any(part.startswith(".") for part in place.parts) for place in changed(event, arguments, folder)
        ):
            return
        busy, number = True, number + 1
        shutil.copytree(folder, snapshots / str(number))
        busy = False

    return before


def changed(event: str, arguments: tuple[Any, ...], folder: Path) -> list[Path]:
    """What the operation of an audit event changes below a folder, relative to it."""
    if event != "open" and event not in CHANGES:
        return []
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        return []
    places = [folder / each for each in arguments[:2] if isinstance(each, str)]
    return [each.relative_to(folder) for each in places if each.is_relative_to(folder)]


if __name__ == "__main__":
    serve(sys.argv[1])
