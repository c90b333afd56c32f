"""`reasonrag index build`: from the caller's keyword arguments to an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preference.records import shared_fields
from reasonrag.data.compressed import plain_corpus
from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.build_progress import BuildWatcher
from reasonrag.retrieval.dense.encoders import MINILM, EncoderChoice, short_name
from reasonrag.retrieval.dense.manifest import IndexManifest, default_index_directory
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.settings import IndexSettings
from reasonrag.settings import resolve
from reasonrag.signatures import public_call


@public_call(IndexSettings)
def index_build(*, watcher: BuildWatcher | None = None, **flags: Any) -> tuple[Path, IndexManifest]:
    """Build an index over a corpus; returns its directory and its manifest.

    Without `out` it goes where `generate` looks for it. A killed dense build resumes; another type over existing
    vectors is built without encoding again. Raises InputError for a bad corpus, encoder or directory.

    Example:
        >>> place, manifest = reasonrag.index_build(corpus="corpora/handbook.jsonl", out="indexes/handbook")
        >>> manifest.passages
        2

    Args:
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(IndexSettings, "index", flags)
    watcher = watcher or SilentWatcher()
    kind = settings.kind or ("dense" if settings.of_a_dense_index else "bm25")
    if kind == "bm25":
        for name in settings.of_a_dense_index:
            if flags.get(name) is not None:  # settings from other sources may be meant for other commands
                raise InputError(f"--{name.replace('_', '-')} is for dense indexes: give --kind dense, or leave it out")
    corpus = plain_corpus(settings.corpus, settings.index_home, say=watcher.say)
    if kind == "bm25":
        directory = settings.out or default_index_directory(corpus, settings.index_home)
        return directory, build_bm25(corpus, directory, watcher, settings.language)
    model = settings.encoder or MINILM
    directory = settings.out or default_index_directory(corpus, settings.index_home, f"dense-{short_name(model)}")
    given = {"model": settings.encoder} | shared_fields(settings, EncoderChoice)
    options = BuildOptions(
        encoder=EncoderChoice.model_validate({name: value for name, value in given.items() if value is not None}),
        index_type=settings.type,
        devices=settings.device,
        precision=settings.precision,
        batch_size=settings.batch_size,
        from_faiss=settings.from_faiss,
        gpu=settings.gpu,
    )
    return directory, build_dense(corpus, directory, options, watcher)
