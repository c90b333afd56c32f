"""The main job's helpers: the command line in this process, and an endpoint in another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from reasonrag import cli


@dataclass(frozen=True)
class Done:
    """What a command left: exit status, stdout and stderr with their line breaks folded."""

    status: int
    out: str
    err: str


Reasonrag = Callable[..., Done]


@pytest.fixture
def reasonrag(capsys: pytest.CaptureFixture[str]) -> Reasonrag:
    """Run `reasonrag` with these arguments in this process."""

    def run(*arguments: object) -> Done:
        status = cli.run([str(each) for each in arguments])
        captured = capsys.readouterr()
        return Done(status, captured.out, " ".join(captured.err.split()))

    return run


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Base URL of `reasonrag simulate-endpoint`, running as a command of its own."""
    command = [sys.executable, "-m", "reasonrag", "simulate-endpoint", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base_url = server.stdout.readline().split()[2]
        yield base_url
        server.terminate()
