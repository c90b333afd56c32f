"""A real run that is read no faster than a test lets it: what is seen of a served run before all of it was read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reasonrag.viewing.collection import ExploredQuestion, RunCollection
from reasonrag.viewing.view_server import BackgroundScan, serve_page
from tests.helpers.endpoints import in_a_thread


class Slow(RunCollection):
    """Goes on to the next question, and after the last one to the end, each time it is allowed to."""

    def __init__(self, rollouts: Path) -> None:
        super().__init__(rollouts)
        self.allowed = threading.Semaphore(0)
        self.answering = threading.Event()
        """Until then nobody is shown a question."""
        self.answering.set()

    def scan(self) -> Iterator[ExploredQuestion]:
        for each in super().scan():
            self.allowed.acquire()
            yield each
        self.allowed.acquire()

    def at(self, number: int) -> ExploredQuestion:
        self.answering.wait()
        return super().at(number)


@contextmanager
def slowly_served(collection: Slow, questions: int) -> Iterator[str]:
    """The address of its page, served by another thread, as a browser keeps this one. questions: how many there are."""

    def go_on() -> None:
        collection.answering.set()
        collection.allowed.release(questions + 1)

    with in_a_thread(serve_page(BackgroundScan(collection), port=0), at_the_end=go_on) as address:
        yield address
