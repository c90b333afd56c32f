"""Settings of building a corpus from documents."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from reasonrag.data.documents.language import LANGUAGE, Languages
from reasonrag.data.documents.passages import PASSAGE_CHARS
from reasonrag.settings import Panel, Settings, setting

CORPORA = Path("corpora")
"""Where corpora go that have no --out."""


class CorpusSettings(Settings):
    """Settings of `corpus build`."""

    folder: Path = Field(description="Folder of Markdown, HTML, plain text and PDF files")
    out: Path | None = setting("File of the corpus [default: corpora/<folder>.jsonl]", Panel.OUTPUT)
    max_chars: int = setting(
        "Maximum characters per passage, without its title", default=PASSAGE_CHARS, ge=200, le=12_000
    )
    language: Languages = setting(LANGUAGE, default=[])
