"""A long experiment in phases: each is done once; a start after a stop begins with the first that is not done.

Knows no experiment; `loop.py`, `real_model.py`, `critics.py` and `proof_gpu.py` are written with it.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reporting import ROOT


@dataclass
class Phases:
    """Phases of an experiment in `work`. variables: of the environment of its commands, beside those there are.
    took: seconds of each phase that was done or found done; of a phase that was stopped, those of its last start."""

    work: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)

    def reasonrag(self, name: str, *arguments: str, allowed: Collection[int] = (0,)) -> None:
        self.command(name, sys.executable, "-m", "reasonrag", *arguments, allowed=allowed)

    def command(self, name: str, *arguments: str, allowed: Collection[int] = (0,)) -> None:
        """Run a command once; its output goes to a log. allowed: exit statuses of one that is done. Raises SystemExit
        for others, with its last lines."""

        def run() -> None:
            ours = list(arguments[:3]) == [sys.executable, "-m", "reasonrag"]
            say(f"$ {shlex.join(arguments[2:] if ours else arguments)}")
            log = self.work / "log" / f"{name.replace(' ', '-')}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as out:
                status = _finished(
                    subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, env=self._environment())
                )
            if status not in allowed:
                last = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-15:])
                raise SystemExit(f"{name} failed with exit status {status}; {log} ends:\n{last}")

        self.once(name, run)

    def once(self, name: str, work: Callable[[], None]) -> None:
        """Do something once: its mark, with the seconds it took, is written when it is done."""
        mark = self.work / "done" / f"{name.replace(' ', '-')}.json"
        if not mark.exists():
            began = time.monotonic()
            work()
            seconds = time.monotonic() - began
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(json.dumps({"seconds": round(seconds, 1)}))
            say(f"  {name}: {seconds:.0f} s")
        self.took[name] = json.loads(mark.read_text())["seconds"]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"} | self.variables


@dataclass
class Timed(Phases):
    """Phases of which none begins after `until`, in seconds since 1970, and whose commands are ended then. told: after
    each, of the seconds of all."""

    until: float = math.inf
    told: Callable[[Mapping[str, float]], None] = lambda _: None

    def command(self, name: str, *arguments: str, allowed: Collection[int] = (0,)) -> None:
        left = min(max(1, math.ceil(self.until - time.time())), 1 << 20)
        limit = ("timeout", "--foreground", "--signal=INT", "--kill-after=10", str(left))
        super().command(name, *limit, *arguments, allowed=allowed)

    def once(self, name: str, work: Callable[[], None]) -> None:
        def timely() -> None:
            if time.time() > self.until:
                raise SystemExit(f"{name} would begin after the last minute")
            work()

        super().once(name, timely)
        self.told({**self.took})


def _finished(process: subprocess.Popen[bytes]) -> int:
    """Its exit status. After Ctrl-C, which it has got too, it may still end what it started; a second one kills it."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait()
        finally:
            process.kill()
        raise


_SAYING = threading.Lock()


def say(text: str) -> None:
    with _SAYING:
        print(text, file=sys.stderr, flush=True)
