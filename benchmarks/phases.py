"""A long experiment in phases: each is done once; a start after a stop begins with the first that is not done.

Knows no experiment; `loop.py`, `real_model.py` and `critics.py` are written with it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
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

    def reasonrag(self, name: str, *arguments: str) -> None:
        self.command(name, sys.executable, "-m", "reasonrag", *arguments)

    def command(self, name: str, *arguments: str) -> None:
        """Run a command once; its output goes to a log. Raises SystemExit where it fails, with its last lines."""

        def run() -> None:
            ours = list(arguments[:3]) == [sys.executable, "-m", "reasonrag"]
            say(f"$ {shlex.join(arguments[2:] if ours else arguments)}")
            log = self.work / "log" / f"{name.replace(' ', '-')}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as out:
                status = _finished(
                    subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, env=self._environment())
                )
            if status:
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
