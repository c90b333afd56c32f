"""Corpora in FlashRAG's format, read by offset and never held whole.

A corpus is JSONL, one `{"id", "contents": "title\\ntext"}` per line (`dataset_fields` says which others are taken).
Scanning it once finds every broken line and duplicate id before anything is built on it.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from preference.records import PassageRef
from reasonrag.data.dataset_fields import UnreadColumns, id_of, title_and_text
from reasonrag.errors import InputError
from reasonrag.files import numbered_lines, reading
from reasonrag.rendering import counted

_TOLD_EVERY = 1 << 20
LONG_PASSAGE_CHARS = 12_000
"""A passage's text above it is called long: 3,000 tokens of English, up to 12,000 of Chinese.

Three make a prompt nearly four times as long as the longest of RAG_ProGuide, 2,390 tokens with its reply. The longest
of 18,930 passages of HotpotQA has 8,237 characters.
"""
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable unit of text. `score`: the retriever's, higher is better; 0 outside a search. fallback: whether it
    was found by words that are only similar to the query's."""

    id: str
    title: str
    text: str
    score: float = 0.0
    fallback: bool = False

    def reference(self, *, not_gold: bool = False) -> PassageRef:
        """It without its text. not_gold: as of `PassageRef`."""
        return PassageRef(id=self.id, title=self.title, score=self.score, not_gold=not_gold, fallback=self.fallback)

    @property
    def contents(self) -> str:
        """Title and text as FlashRAG stores them; the text that dense and BM25 indexes are built from."""
        return f"{self.title}\n{self.text}"

    def to_line(self) -> bytes:
        """Of a corpus."""
        return orjson.dumps({"id": self.id, "contents": self.contents}, option=orjson.OPT_APPEND_NEWLINE)


class CorpusScan(NamedTuple):
    """Result of one pass over a corpus. `offsets`: byte position of each passage's line, in file order."""

    sha256: str
    offsets: npt.NDArray[np.int64]


def scan_corpus(
    path: Path, *, advanced: Callable[[int], object] = lambda _: None, say: Callable[[str], None] = lambda _: None
) -> CorpusScan:
    """Check a corpus line by line, in 24 bytes of memory per passage.

    advanced: called with the bytes read so far, about every MiB. say: told of columns that are not read,
        and of long passages. Raises InputError for a file that cannot be read, is empty, or has a broken line or a
        duplicate id.
    """
    digest = hashlib.sha256()
    offsets, names, unread = array("q"), array("q"), UnreadColumns()
    long, longest = 0, Passage("", "", "")
    with reading(f"the corpus {path}"):
        with path.open("rb") as lines:
            position = told = 0
            for number, line in numbered_lines(path, lines):
                passage = parse_passage(line, where=f"{path}, line {number}", unread=unread)
                names.append(hash(passage.id))
                if len(passage.text) > LONG_PASSAGE_CHARS:
                    long, longest = long + 1, max(longest, passage, key=lambda each: len(each.text))
                digest.update(line)
                offsets.append(position)
                position += len(line)
                if position - told >= _TOLD_EVERY:
                    told = position
                    advanced(position)
        _refuse_duplicates(path, np.frombuffer(names, dtype=np.int64))
    if not offsets:
        raise InputError(f"the corpus {path} is empty; it needs one passage per line")
    if notice := unread.notice(path):
        say(notice)
    if long:
        say(
            f"warning: {counted(long, 'passage')} with more than {LONG_PASSAGE_CHARS:,} characters; the longest, "
            f"{longest.id[:_SHOWN_CHARS]}, is about {len(longest.text) // 4:,} tokens of English in every prompt that "
            f"shows it. Split such passages in the corpus, or give --max-passage-chars {LONG_PASSAGE_CHARS // 4}"
        )
    return CorpusScan(digest.hexdigest(), np.frombuffer(offsets, dtype=np.int64))


def _refuse_duplicates(path: Path, names: npt.NDArray[np.int64]) -> None:
    """Raises InputError for an id used twice. names: a hash of each line's id; equal hashes are checked again."""
    ordered = np.sort(names)
    suspects = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(suspects):
        return
    rows = set(np.flatnonzero(np.isin(names, suspects)).tolist())
    first_seen: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in numbered_lines(path, lines):
            if number - 1 not in rows:
                continue
            passage_id = parse_passage(line, where=f"{path}, line {number}").id
            if first_seen.setdefault(passage_id, number) != number:
                raise InputError(
                    f"{path}, line {number}: passage id {passage_id!r} was already used in line "
                    f"{first_seen[passage_id]}. Ids must be unique"
                )


class Corpus:
    """Random access to the passages of a scanned file, by row. `offsets` may be memory-mapped."""

    def __init__(self, path: Path, offsets: npt.NDArray[np.int64]) -> None:
        self.path = path
        self._offsets = offsets
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, row: int) -> Passage:
        start = int(self._offsets[row])
        stop = int(self._offsets[row + 1]) if row + 1 < len(self) else len(self._bytes)
        return parse_passage(self._bytes[start:stop], where=f"{self.path}, passage {row}")

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    def read(self, start: int, stop: int) -> list[Passage]:
        """The passages of consecutive rows, read in one piece: mapped pages would count as memory."""
        first = int(self._offsets[start])
        end = int(self._offsets[stop]) if stop < len(self) else len(self._bytes)
        with self.path.open("rb") as file:
            file.seek(first)
            lines = file.read(end - first).removesuffix(b"\n").split(b"\n")
        return [parse_passage(line, where=f"{self.path}, passage {row}") for row, line in enumerate(lines, start)]


def parse_passage(line: bytes, *, where: str, unread: UnreadColumns | None = None) -> Passage:
    """One line of a corpus. unread: collects its columns that are not read. Raises InputError naming `where`."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error}); each line must be one passage") from error
    passage = passage_of(record) if isinstance(record, dict) else None
    if passage is None:
        raise InputError(f'{where} is not a passage: it needs "id" and "contents" ("title\\ntext")')
    if unread is not None:
        unread.add_passage(record)
    return passage


def passage_of(record: dict[str, Any]) -> Passage | None:
    """The passage of a corpus' record; None if it is none."""
    passage_id, (title, text) = id_of(record), title_and_text(record)
    is_named = isinstance(passage_id, str | int) and not isinstance(passage_id, bool) and passage_id != ""
    if is_named and isinstance(title, str) and isinstance(text, str) and (title.strip() or text.strip()):
        return Passage(id=str(passage_id), title=title.strip(), text=text.strip())
    return None
