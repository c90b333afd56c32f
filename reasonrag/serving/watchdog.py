"""Runs a command only as long as its parent lives: `python watchdog.py COMMAND..`, with stdin as the life line.

A killed process cannot end its children, but its end of a pipe closes anyway. When stdin ends, the command and its
children are terminated, then killed. Standard library only, and run as a file, so it works under any interpreter and
starts fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE_S = 5.0
"""Seconds the command has to exit after SIGTERM."""


def main(command: list[str]) -> int:
    """Run the command in its own process group; returns its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: object) -> None:
        _signal(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        _signal(child.pid, signal.SIGKILL)  # what it started may outlive it

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: threading.Thread(target=end).start())
    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    _signal(child.pid, signal.SIGKILL)
    return 128 - status if status < 0 else status  # as shells say it


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
