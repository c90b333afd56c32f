"""A folder of documents becomes a corpus in FlashRAG's format: `corpus_build`.

Decides which files of a folder are read, of which kinds shared lines are left out, the ids of passages, which are left
out as duplicates, and what is reported. The same files give the same bytes, wherever the folder lies. Knows no format
of documents.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

from preference.export.private_files import atomic_replacement, write_json
from preference.records import Record
from preference.similarity import folded
from reasonrag.data.corpus import parse_passage
from reasonrag.data.documents.document import UnreadableError
from reasonrag.data.documents.language import LanguageCounts
from reasonrag.data.documents.reader import KINDS, DocumentReader, as_document, kind_of
from reasonrag.data.documents.shared_lines import SharedLines
from reasonrag.data.settings import CORPORA, CorpusSettings
from reasonrag.errors import InputError, needs_extra
from reasonrag.files import made_here, numbered_lines, readable, reading, writing
from reasonrag.rendering import Line, Part, Shown, Table, counted, next_command
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

_SHOWN_CAUSES = 5
_SHOWN_FILES, _SHOWN_CHARS = 20, 100
_PACKAGES = "trafilatura markdownify markdown_it pypdf mammoth python_calamine semantic_text_splitter".split()
"""What the processes need that read the documents."""
_FROM_TEMPLATES = ("HTML", "PDF", "Word")
"""Kinds of documents whose programs write lines into each: banners and running heads."""


class UnreadFile(Record):
    file: str
    """Path below the folder."""
    cause: str


class CorpusSummary(Record, Shown):
    """What `corpus build` made of a folder; the content of the `.summary.json` beside the corpus."""

    out: str
    folder: str
    sha256: str
    """Of the corpus."""
    languages: tuple[str, ...]
    """Of the corpus, the commonest first, as given or detected; BM25 indexes of it take them."""
    files: dict[str, int]
    """Documents read, by kind."""
    passages: int
    max_chars: int
    duplicates: int
    """Passages left out because an earlier one has the same title and text."""
    shared_lines: dict[str, int]
    """Lines left out because more than half of the files of a kind share them, with the number of files."""
    unreadable: list[UnreadFile]
    left_out: dict[str, int]
    """What was not read, counted: files by suffix, `links`, `hidden` files and folders, and `folders of reasonrag`:
    runs, data sets and the like."""
    not_read: list[UnreadFile]
    """Its names; all but the hidden."""

    def shown(self) -> Iterator[Part]:
        rows = [
            ("files read", self.files),
            ("passages", self.passages),
            ("language", list(self.languages)),
            ("duplicates left out", self.duplicates),
            ("not read", self.left_out),
            ("unreadable", len(self.unreadable) or ""),
            ("shared lines left out", len(self.shared_lines) or ""),
        ]
        named = [f"unreadable: {each.file}: {each.cause}" for each in self.unreadable]
        named += [f"not read: {each.file}: {each.cause}" for each in self.not_read]
        shared = [
            f"left out of {counted(files, 'file')}: {line[:_SHOWN_CHARS]}" for line, files in self.shared_lines.items()
        ]
        about = Path(self.out).with_suffix(".summary.json")
        for each in (named, shared):
            yield from each[:_SHOWN_FILES]
            if len(each) > _SHOWN_FILES:
                yield Line(f"and {len(each) - _SHOWN_FILES:,} more, in {about}")
        yield Table(f"corpus of {self.folder}", rows)
        yield Line(f"wrote {self.out} ({counted(self.passages, 'passage')}); summary: {about}")
        yield next_command("corpus", "questions", self.out, "--model", "offline")


@public_call(CorpusSettings)
def corpus_build(
    folder: str | Path, *, advanced: Callable[[int, int], object] = lambda _done, _of: None, **flags: Any
) -> CorpusSummary:
    """Write the passages of a folder's documents as a corpus.

    Raises InputError if the folder cannot be read or has no text, if `out` cannot be written or holds something else
    than a corpus, and where the extra `corpus` is missing.

    Example:
        >>> built = reasonrag.corpus_build("handbook", out="corpora/handbook.jsonl")
        >>> built.passages
        2

    Args:
        folder: of web pages, PDF, Word, Excel, CSV, Markdown, text and e-mail files.
        advanced: called with the number of files read so far, and of all.
    """
    settings = resolve(CorpusSettings, "corpus", {**flags, "folder": Path(folder)})
    with needs_extra("corpus", "corpus build"):
        for needed in _PACKAGES:
            if find_spec(needed) is None:
                raise ModuleNotFoundError(f"No module named {needed!r}", name=needed)
    with reading(settings.folder, missing=f"{settings.folder} does not exist; give the folder that holds your pages"):
        root = settings.folder.resolve(strict=True)
        if not root.is_dir():
            raise InputError(f"{settings.folder} is not a folder; give the one that holds your pages")
    out = settings.out or CORPORA / f"{root.name or 'root'}.jsonl"
    _refuse_other_content(out)
    found = _Found.below(root, settings.folder)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            atomic_replacement(out) as file,
            TemporaryFile() as spool,
            closing(DocumentReader(root, max_chars=settings.max_chars)) as reader,
        ):
            shared = {} if settings.keep_shared else {kind: SharedLines() for kind in _FROM_TEMPLATES}
            writer = _CorpusWriter(reader, spool, shared)
            for number, path in enumerate(found.documents, start=1):
                writer.read(path)
                advanced(number, len(found.documents))
            for lines in writer.lines():
                file.write(lines)
            if not writer.passages:
                causes = "; ".join(f"{each.file}: {each.cause}" for each in writer.unreadable[:_SHOWN_CAUSES])
                many = counted(len(found.documents), "document")
                raise InputError(f"nothing in {settings.folder} could be read, of {many}: {causes}")
        summary = CorpusSummary(
            out=str(out),
            folder=str(settings.folder),
            languages=tuple(settings.language) or writer.languages.common,
            max_chars=settings.max_chars,
            left_out=dict(found.left_out.most_common()),
            not_read=sorted(found.not_read, key=lambda each: each.file),
            **writer.counts,
        )
        write_json(out.with_suffix(".summary.json"), summary.model_dump())
    return summary


def _refuse_other_content(out: Path) -> None:
    """Raises InputError for what is there and is not a file, or does not begin with a passage."""
    with reading(out):
        if not out.exists() or (out.is_file() and not out.stat().st_size):
            return
        if not out.is_file():
            raise InputError(f"{out} exists and is not a file: not replaced; choose another --out")
        try:
            with out.open("rb") as lines:
                parse_passage(next(numbered_lines(out, lines))[1], where=str(out))
        except InputError as error:
            raise InputError(f"{out} exists and is not a corpus: not replaced; choose another --out") from error


@dataclass
class _Found:
    """The files of a folder: paths of the documents, with /, in order; what else there is, by what it is."""

    documents: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    not_read: list[UnreadFile] = field(default_factory=list)

    @classmethod
    def below(cls, root: Path, given: Path) -> _Found:
        """Follows no link, and looks into no hidden folder. given: the root as the user wrote it. Raises InputError for
        a folder that cannot be read, and where there is no document."""
        found = cls()

        def refused(error: OSError) -> None:
            raise InputError(f"cannot read {error.filename}: {error.strerror}; make it readable, or move it away")

        for folder, folders, files in os.walk(root, onerror=refused):
            ours = set[str]()
            for name in (*folders, *files):
                path = Path(folder, name)
                suffix = path.suffix.lower()
                if name.startswith("."):
                    found.left_out["hidden"] += 1
                elif path.is_symlink():
                    found._leave_out(path.relative_to(root), "links", "a link, which is not followed")
                elif name in folders and made_here(path):
                    found._leave_out(path.relative_to(root), "folders of reasonrag", "a folder of reasonrag")
                    ours.add(name)
                elif name in files and suffix in KINDS:
                    found.documents.append(path.relative_to(root).as_posix())
                elif name in files:
                    cause = f"{suffix or 'a file without suffix'} is not read"
                    found._leave_out(path.relative_to(root), suffix or "without suffix", cause)
            folders[:] = [name for name in folders if not name.startswith(".") and name not in ours]
        if not found.documents:
            others = ", ".join(f"{count:,} {what}" for what, count in found.left_out.most_common(_SHOWN_CAUSES))
            but = f", but {others}" if others else ""
            raise InputError(f"{given} has no document ({', '.join(KINDS)}){but}; convert its files to these")
        found.documents.sort(key=lambda path: PurePosixPath(path).parts)
        return found

    def _leave_out(self, path: PurePath, what: str, cause: str) -> None:
        self.left_out[what] += 1
        self.not_read.append(UnreadFile(file=readable(path.as_posix()), cause=cause))


@dataclass
class _CorpusWriter:
    """The lines of a corpus, and what is counted on the way. spool: takes the documents until all are read, since only
    then it is known what they share. shared: by kind, of those that leave it out."""

    reader: DocumentReader
    spool: IO[bytes]
    shared: dict[str, SharedLines]
    digest: Any = field(default_factory=hashlib.sha256)
    files: Counter[str] = field(default_factory=Counter)
    unreadable: list[UnreadFile] = field(default_factory=list)
    passages: int = 0
    duplicates: int = 0
    languages: LanguageCounts = field(default_factory=LanguageCounts)
    _seen: set[bytes] = field(default_factory=set)

    def read(self, path: str) -> None:
        file = readable(path)
        try:
            document = self.reader.read(path)
        except UnreadableError as error:
            self.unreadable.append(UnreadFile(file=file, cause=str(error)))
            return
        if shared := self.shared.get(kind_of(file)):
            shared.add(file, document)
        fields = asdict(replace(document, beside=[]))
        line = json.dumps([file, fields], ensure_ascii=False)  # orjson refuses the surrogates that a PDF may give
        self.spool.write(line.encode("utf-8", "replace") + b"\n")

    def lines(self) -> Iterator[bytes]:
        """Those of each document."""
        self.spool.seek(0)
        for line in self.spool:
            file, fields = orjson.loads(line)
            document, kind = as_document(fields), kind_of(file)
            if shared := self.shared.get(kind):
                document = shared.without(file, document)
            try:
                passages = self.reader.passages(document)
            except UnreadableError as error:
                self.unreadable.append(UnreadFile(file=file, cause=str(error)))
            else:
                self.files[kind] += 1
                yield self._lines_of(file, passages)

    def _lines_of(self, shown: str, passages: Iterable[tuple[str, str]]) -> bytes:
        """A passage's id is its path and a digest of what it says: a change of one passage leaves all other ids."""
        lines = []
        for title, text in passages:
            contents = f"{title}\n{text}"
            key = hashlib.sha256(folded(contents).encode("utf-8", "replace")).digest()
            if key in self._seen:
                self.duplicates += 1
                continue
            self._seen.add(key)
            self.languages.add(contents)
            record = {"id": f"{shown}#{key.hex()[:12]}", "contents": contents}
            lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            self.passages += 1
        self.digest.update(b"".join(lines))
        return b"".join(lines)

    @property
    def counts(self) -> dict[str, Any]:
        """Of the corpus' summary."""
        shared = sum((each.left_out for each in self.shared.values()), Counter[str]())
        return {
            "sha256": self.digest.hexdigest(),
            "files": dict(sorted(self.files.items())),
            "passages": self.passages,
            "duplicates": self.duplicates,
            "shared_lines": dict(sorted(shared.items(), key=lambda each: (-each[1], each[0]))),
            "unreadable": self.unreadable,
        }
