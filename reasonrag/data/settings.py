"""Settings of building a corpus from documents."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from reasonrag.data.documents.passages import PASSAGE_CHARS
from reasonrag.settings import Panel, Settings, setting

CORPORA = Path("corpora")
"""Where corpora go that have no --out."""


class CorpusSettings(Settings):
    """Settings of `corpus build`."""

    folder: Path = Field(description="Folder of Markdown, HTML, plain text and PDF files")
    out: Path | None = setting("The corpus to write [default: corpora/<folder>.jsonl]", Panel.OUTPUT)
    max_chars: int = setting(
        "Longest text of a passage, in characters; its title is not counted", default=PASSAGE_CHARS, ge=200, le=12_000
    )
    max_file_mb: float = setting("Largest file that is read, in MB", Panel.LIMITS, default=50.0, gt=0)
    max_pages: int = setting("Most pages of a PDF that is read", Panel.LIMITS, default=2000, ge=1)
    max_seconds: float = setting("Longest time to read a file", Panel.LIMITS, default=60.0, gt=0)
