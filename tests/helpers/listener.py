"""A watcher of a job that keeps what it is told."""

from __future__ import annotations

from reasonrag.progress import SilentWatcher


class Listener(SilentWatcher):
    def __init__(self) -> None:
        self.said = list[str]()
        self.warnings = list[str]()

    def say(self, message: str) -> None:
        self.said.append(message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)
