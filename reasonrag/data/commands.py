"""The command of corpora: `reasonrag corpus build`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.data.settings import CorpusSettings
from reasonrag.options import Json, options, print_result
from reasonrag.rendering import counted
from reasonrag.terminal import PLAIN_LINE_EVERY_S, print_shown


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
    print_result(summary, summary.shown(), as_json=as_json)
