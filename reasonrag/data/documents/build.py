"""A folder of documents becomes a corpus in FlashRAG's format: `corpus_build`.

Decides which files of a folder are read, the ids of passages, which are left out as duplicates, and what is reported.
The same files give the same bytes, wherever the folder lies. Knows no format of documents.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from preference.export.private_files import atomic_replacement, write_json
from preference.similarity import folded
from reasonrag.data.corpus import parse_passage
from reasonrag.data.documents.document import UnreadableError
from reasonrag.data.documents.language import LanguageCounts
from reasonrag.data.documents.reader import KINDS, DocumentReader
from reasonrag.data.settings import CORPORA, CorpusSettings
from reasonrag.errors import InputError, needs_extra
from reasonrag.files import made_here, numbered_lines, reading, writing
from reasonrag.rendering import counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

_SHOWN_CAUSES = 5


class UnreadFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    file: str
    """Path below the folder."""
    cause: str


class CorpusSummary(BaseModel):
    """What `corpus build` made of a folder; the content of the `.summary.json` beside the corpus."""

    model_config = ConfigDict(frozen=True)

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
    unreadable: list[UnreadFile]
    left_out: dict[str, int]
    """What was not read: files by suffix, `links`, `hidden` files and folders, and `folders of reasonrag`: runs, data
    sets and the like."""


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
        folder: of Markdown, HTML, text and PDF files.
        advanced: called with the number of files read so far, and of all.
    """
    settings = resolve(CorpusSettings, "corpus", {**flags, "folder": Path(folder)})
    with needs_extra("corpus", "corpus build"):
        import markdown_it  # noqa: F401 - what the processes need that read the documents
        import pypdf  # noqa: F401
        import selectolax  # noqa: F401
        import semantic_text_splitter  # noqa: F401
    with reading(settings.folder, missing=f"{settings.folder} does not exist; give the folder that holds your pages"):
        root = settings.folder.resolve(strict=True)
        if not root.is_dir():
            raise InputError(f"{settings.folder} is not a folder; give the one that holds your pages")
    out = settings.out or CORPORA / f"{root.name or 'root'}.jsonl"
    _refuse_other_content(out)
    found = _Found.below(root)
    if not found.documents:
        others = ", ".join(f"{count:,} {what}" for what, count in found.left_out.most_common(_SHOWN_CAUSES))
        but = f", but {others}" if others else ""
        raise InputError(f"{settings.folder} has no document ({', '.join(KINDS)}){but}; convert its files to these")
    writer = _CorpusWriter()
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replacement(out) as file, closing(DocumentReader(root, max_chars=settings.max_chars)) as reader:
            for number, path in enumerate(found.documents, start=1):
                file.write(writer.lines_of(path, reader))
                advanced(number, len(found.documents))
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

    @classmethod
    def below(cls, root: Path) -> _Found:
        """Follows no link, and looks into no hidden folder. Raises InputError for a folder that cannot be read."""
        found = cls()

        def refused(error: OSError) -> None:
            raise InputError(f"cannot read {error.filename}: {error.strerror}; make it readable, or move it away")

        for folder, folders, files in os.walk(root, onerror=refused):
            ours = set[str]()
            for name in (*folders, *files):
                path = Path(folder, name)
                if name.startswith("."):
                    found.left_out["hidden"] += 1
                elif path.is_symlink():
                    found.left_out["links"] += 1
                elif name in folders and made_here(path):
                    found.left_out["folders of reasonrag"] += 1
                    ours.add(name)
                elif name in files:
                    if path.suffix.lower() in KINDS:
                        found.documents.append(path.relative_to(root).as_posix())
                    else:
                        found.left_out[path.suffix.lower() or "without suffix"] += 1
            folders[:] = [name for name in folders if not name.startswith(".") and name not in ours]
        found.documents.sort(key=lambda path: PurePosixPath(path).parts)
        return found


@dataclass
class _CorpusWriter:
    """The lines of a corpus, and what is counted on the way."""

    digest: Any = field(default_factory=hashlib.sha256)
    files: Counter[str] = field(default_factory=Counter)
    unreadable: list[UnreadFile] = field(default_factory=list)
    passages: int = 0
    duplicates: int = 0
    languages: LanguageCounts = field(default_factory=LanguageCounts)
    _seen: set[bytes] = field(default_factory=set)

    def lines_of(self, path: str, reader: DocumentReader) -> bytes:
        """The lines of a document's passages. A passage's id is its path and a digest of what it says, so that a change
        of one passage leaves the ids of all others."""
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        try:
            read = reader.read(path)
        except UnreadableError as error:
            self.unreadable.append(UnreadFile(file=shown, cause=str(error)))
            return b""
        self.files[KINDS[PurePath(path).suffix.lower()]] += 1
        lines = []
        for title, text in read:
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
        return {
            "sha256": self.digest.hexdigest(),
            "files": dict(sorted(self.files.items())),
            "passages": self.passages,
            "duplicates": self.duplicates,
            "unreadable": self.unreadable,
        }
