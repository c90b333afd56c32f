"""The failure log: failed attempts and abandoned work, a line each, in a file made at the first. Knows no work."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from preference.export.private_files import open_private
from preference.records import QuestionError
from reasonrag.files import append_durably, storing
from reasonrag.llm.endpoint.endpoint import CallFailure
from reasonrag.redaction import excerpt

MOST_NOTED = 10_000
"""Characters kept of each text of a failure. A traceback has a few thousand."""


class FailureLog(AbstractContextManager["FailureLog"]):
    """Use as a context manager. Secrets are redacted; a failed write raises StorageError."""

    def __init__(self, path: Path) -> None:
        self.given_up: Counter[str] = Counter()
        """Abandoned work, by cause."""
        self._path = path
        self._file: BinaryIO | None = None

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def attempt(self, failure: CallFailure) -> None:
        """Log an attempt of a request that failed."""
        self.note("call", **asdict(failure))

    def give_up(self, kind: str, cause: str, message: str, **where: Any) -> QuestionError:
        """Log work that will have no result. Returns why, as it was written."""
        self.given_up[cause] += 1
        return QuestionError(cause=cause, message=self.note(kind, **where, cause=cause, message=message)["message"])

    def note(self, kind: str, **failure: Any) -> dict[str, Any]:
        """Record a failure, with its texts redacted and cut. Returns what was written."""
        shown = {key: excerpt(value, MOST_NOTED) if isinstance(value, str) else value for key, value in failure.items()}
        with storing(self._path):
            if self._file is None:
                self._file = open_private(self._path, "ab")
            line = orjson.dumps({"kind": kind} | shown, option=orjson.OPT_APPEND_NEWLINE)
            append_durably(self._file.fileno(), line, end=self._file.seek(0, os.SEEK_END), sync=False)
        return shown
