"""The command of corpora: `reasonrag corpus build`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reasonrag.data.settings import CorpusSettings
from reasonrag.options import Json, options, print_result
from reasonrag.rendering import Line, Part, Table, counted, next_command
from reasonrag.terminal import PLAIN_LINE_EVERY_S, print_shown

if TYPE_CHECKING:
    from reasonrag.data.documents.build import CorpusSummary

_SHOWN_FILES, _SHOWN_CHARS = 20, 100


@options(CorpusSettings, without=["folder"], example="reasonrag corpus build handbook --out corpora/handbook.jsonl")
def build(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of documents: .html, .pdf, .docx, .xlsx, .csv, .md, .txt, .eml"),
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Build a corpus from a folder of documents.

    Each passage carries its document's title and headings; a row of a table is a passage. Links are not followed. What
    is not read is named with its cause; duplicate passages and lines that most files share are left out and counted.
    """
    from reasonrag.data.documents.build import corpus_build

    told = time.monotonic()

    def advanced(done: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PLAIN_LINE_EVERY_S:
            told = time.monotonic()
            print_shown(f"read {done:,} of {counted(of, 'file')}", file=sys.stderr, flush=True)

    summary = corpus_build(folder, advanced=advanced, **flags)
    print_result(summary, _parts, as_json=as_json)


def _parts(summary: CorpusSummary) -> Iterator[Part]:
    rows = [
        ("files read", summary.files),
        ("passages", summary.passages),
        ("language", list(summary.languages)),
        ("duplicates left out", summary.duplicates),
        ("not read", summary.left_out),
        ("unreadable", len(summary.unreadable) or ""),
        ("shared lines left out", len(summary.shared_lines) or ""),
    ]
    yield Table(f"corpus of {summary.folder}", rows)
    named = [f"unreadable: {each.file}: {each.cause}" for each in summary.unreadable]
    named += [f"not read: {each.file}: {each.cause}" for each in summary.not_read]
    shared = [
        f"left out of {counted(files, 'file')}: {line[:_SHOWN_CHARS]}" for line, files in summary.shared_lines.items()
    ]
    about = Path(summary.out).with_suffix(".summary.json")
    for each in (named, shared):
        yield from each[:_SHOWN_FILES]
        if len(each) > _SHOWN_FILES:
            yield Line(f"and {len(each) - _SHOWN_FILES:,} more, in {about}")
    yield Line(f"wrote {summary.out} ({counted(summary.passages, 'passage')}); summary: {about}")
    yield next_command("corpus", "questions", summary.out, "--model", "offline")
