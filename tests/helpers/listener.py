"""A watcher of a job that keeps what it is told."""

from __future__ import annotations

from reasonrag.progress import SilentWatcher


class Listener(SilentWatcher):
    """Says no to every question."""

    def __init__(self) -> None:
        self.said = list[str]()
        self.warnings = list[str]()
        self.asked = list[str]()

    def say(self, message: str) -> None:
        self.said.append(message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def confirm(self, question: str) -> bool:  # type: ignore[override]
        self.asked.append(question)
        return False
