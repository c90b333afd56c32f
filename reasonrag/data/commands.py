"""The command of corpora: `reasonrag corpus build`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reasonrag.data.documents.settings import CorpusSettings
from reasonrag.options import Json, interrupts, options, print_result
from reasonrag.rendering import counted
from reasonrag.terminal import PLAIN_LINE_EVERY_S, counts_text, on_one_line, print_next, print_shown, print_table

if TYPE_CHECKING:
    from reasonrag.data.documents.build import CorpusSummary

_SHOWN_FILES = 20


@options(CorpusSettings, without=["folder"], example="reasonrag corpus build handbook --out corpora/handbook.jsonl")
def build(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of Markdown, HTML, plain text and PDF files")
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Build a corpus from a folder of Markdown, HTML, text and PDF files.

    Each passage carries its document's title and headings. Links are not followed. Unreadable files are listed with
    their cause; duplicate passages are left out and counted.
    """
    from reasonrag.data.documents.build import corpus_build

    told = time.monotonic()

    def advanced(done: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PLAIN_LINE_EVERY_S:
            told = time.monotonic()
            print_shown(f"read {done:,} of {counted(of, 'file')}", file=sys.stderr, flush=True)

    with interrupts():
        summary = corpus_build(folder, advanced=advanced, **flags)
    print_result(summary, _show, as_json=as_json)


def _show(summary: CorpusSummary) -> None:
    rows = [
        ("files read", counts_text(summary.files)),
        ("passages", f"{summary.passages:,}"),
        (
            "length",
            f"median {counted(summary.median_words, 'word')}, longest {counted(summary.longest_chars, 'character')}",
        ),
        ("language", ", ".join(summary.languages)),
        ("duplicates left out", f"{summary.duplicates:,}"),
        ("not read", counts_text(summary.left_out)),
        ("unreadable", f"{len(summary.unreadable):,}" if summary.unreadable else "-"),
    ]
    print_table(f"corpus of {summary.folder}", rows)
    for each in summary.unreadable[:_SHOWN_FILES]:
        print_shown(f"unreadable: {on_one_line(each.file)}: {on_one_line(each.cause)}")
    about = Path(summary.out).with_suffix(".summary.json")
    if len(summary.unreadable) > _SHOWN_FILES:
        print_shown(f"and {len(summary.unreadable) - _SHOWN_FILES:,} more, in {about}")
    print_shown(f"wrote {summary.out} ({counted(summary.passages, 'passage')}); summary: {about}")
    print_next(
        "generate",
        "--questions",
        "QUESTIONS.jsonl",
        "--corpus",
        summary.out,
        "--model",
        "offline",
        "--run",
        "runs/trial",
    )
