"""`reasonrag index build`: an index of a corpus, made ahead of the run that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reasonrag.retrieval import IndexManifest, build_bm25, index_place
from reasonrag.settings import IndexSettings, resolve


def index_build(**flags: Any) -> tuple[Path, IndexManifest]:
    """Build a BM25 index and say where; the keyword arguments are the command's flags (`corpus`, `out`, `index_home`).

    Without `out` it goes where `generate` will look for it. Raises InputError for a bad corpus or place.
    """
    settings = resolve(IndexSettings, "index", flags)
    directory = settings.out or index_place(settings.corpus, settings.index_home)
    return directory, build_bm25(settings.corpus, directory)
