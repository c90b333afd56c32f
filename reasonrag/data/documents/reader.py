"""Documents read in a process of their own, within limits of size, time and memory.

A PDF or a page is a program for its parser: some take minutes, gigabytes, or the process down. So each is read in a
separate process, which is ended if it exceeds a limit; the next document starts another. Decides which files are
documents, by the ends of their names. Knows no folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from reasonrag.data.documents.document import Document, UnreadableError, name_of, plain_document
from reasonrag.data.documents.html import html_document, markdown_document
from reasonrag.data.documents.passages import passages_of
from reasonrag.data.documents.pdf import pdf_document
from reasonrag.redaction import child_environment

KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mkd"), "Markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "HTML"),
    **dict.fromkeys((".txt", ".text"), "plain text"),
    ".pdf": "PDF",
}
"""Kinds of documents, by suffix in lower case."""
FILE_BYTES, SECONDS, MEMORY_BYTES = 50_000_000, 300.0, 2 << 30
"""Of a document: its largest size, the longest time to read it, and address space of the process that reads."""
MOST_TEXT = 20_000_000
"""Characters of text that a document may have: some 7,000 printed pages."""
_SHOWN = 300
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reasonrag.data.documents.reader import main; main()"


class DocumentReader:
    """A process that reads documents, one at a time; started when it is needed. max_chars: of a passage's text."""

    def __init__(self, folder: Path, *, max_chars: int, seconds: float = SECONDS) -> None:
        self._folder, self._max_chars, self._seconds = folder, max_chars, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._late = False

    def read(self, path: str) -> list[tuple[str, str]]:
        """Title and text of the passages of a file below the folder. Raises UnreadableError."""
        process = self._process or self._started()
        self._late = False
        timer = threading.Timer(self._seconds, self._end_late)
        timer.start()
        try:
            sent = {"folder": str(self._folder), "path": path, "max_chars": self._max_chars}
            answer = self._exchange(process, sent)
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            if self._late:
                raise UnreadableError(f"not read in {self._seconds:g} s")
            raise UnreadableError("its parser crashed")
        if "cause" in answer:
            raise UnreadableError(answer["cause"])
        return [(title, text) for title, text in answer["passages"]]

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes its pipes and waits
                pass

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _BOOT, str(Path(__file__).parents[3])]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=child_environment()
        )
        return self._process

    def _end_late(self) -> None:
        self._late = True
        if process := self._process:
            process.kill()

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], sent: object) -> dict[str, Any] | None:
        """The answer of the process; None if it ended."""
        stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        try:
            stdin.write(json.dumps(sent).encode() + b"\n")
            stdin.flush()
            size = int.from_bytes(stdout.read(8))
            content = stdout.read(size)
        except (BrokenPipeError, ValueError):  # ValueError: closed by another thread
            return None
        if not content or len(content) < size:
            return None
        answer: dict[str, Any] = json.loads(content)
        return answer


# -- the process -------------------------------------------------------------------------------------------------


def main() -> None:
    """Reads a line for each document, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the command
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _limit_memory()
    for line in sys.stdin:
        sent = json.loads(line)
        try:
            answer: dict[str, Any] = {"passages": _read(**sent)}
        except UnreadableError as error:
            answer = {"cause": str(error)[:_SHOWN]}
        except MemoryError:
            answer = {"cause": f"takes more than {MEMORY_BYTES >> 30} GiB of memory"}
        except OSError as error:
            answer = {"cause": error.strerror or str(error)}
        except Exception as error:  # noqa: BLE001 - any exception of a parser is a document that it cannot read
            answer = {"cause": f"{type(error).__name__}: {error}"[:_SHOWN]}
        _send(answers, answer)


def _send(answers: BinaryIO, answer: dict[str, Any]) -> None:
    content = json.dumps(answer).encode()
    answers.write(len(content).to_bytes(8) + content)
    answers.flush()


def _read(folder: str, path: str, max_chars: int) -> list[tuple[str, str]]:
    content = _content(Path(folder) / path)
    if not content.strip():
        raise UnreadableError("empty")
    document = _document(content, path)
    if sum(len(section.text) for section in document.sections) > MOST_TEXT:
        raise UnreadableError(f"more than {MOST_TEXT // 10**6} million characters of text")
    passages = list(passages_of(document, max_chars=max_chars))
    if not passages:
        raise UnreadableError("no text")
    return passages


def _content(path: Path) -> bytes:
    flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))  # each on some systems only
    descriptor = os.open(path, functools.reduce(operator.or_, flags, os.O_RDONLY))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableError("not a regular file")
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise UnreadableError(f"larger than {FILE_BYTES / 1e6:g} MB")
    return content


def _document(content: bytes, path: str) -> Document:
    name = name_of(os.fsencode(path).decode("utf-8", "backslashreplace"))
    kind = KINDS[PurePosixPath(path).suffix.lower()]
    if kind == "PDF":
        return pdf_document(content, name)
    if kind == "HTML":
        return html_document(content, name)
    return markdown_document(content, name) if kind == "Markdown" else plain_document(content, name)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows; macOS; a lower limit holds already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
