"""`reasonrag index build`: from the caller's keyword arguments to an index. Does not know where passages are
encoded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from preference.records import shared_fields
from reasonrag.data.compressed import plain_corpus
from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.build_progress import BuildWatcher
from reasonrag.retrieval.dense.encoders import MINILM, EncoderChoice, short_name
from reasonrag.retrieval.dense.manifest import IndexManifest, default_index_directory
from reasonrag.retrieval.dense.piece_encoding import Encoding
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.settings import IndexSettings
from reasonrag.settings import resolve
from reasonrag.signatures import public_call


class LaunchEncoding(Protocol):
    """Makes an encoding elsewhere, for as long as a block lasts."""

    def __call__(
        self, *, address: str | None, workers: int | None, say: Callable[[str], None]
    ) -> AbstractContextManager[Encoding]: ...


@public_call(IndexSettings)
def index_build(
    *, watcher: BuildWatcher | None = None, launch: LaunchEncoding | None = None, **flags: Any
) -> tuple[Path, IndexManifest]:
    """Build an index over a corpus; returns its directory and its manifest.

    Without `out` it goes where `generate` looks for it. A killed dense build resumes; another type over existing
    vectors is built without encoding again. Raises InputError for a bad corpus, encoder or directory.

    Example:
        >>> place, manifest = reasonrag.index_build(corpus="corpora/handbook.jsonl", out="indexes/handbook")
        >>> manifest.passages
        2

    Args:
        watcher: is told what happens while it goes on; none: silent.
        launch: makes the encoding of `on="ray"`: `reasonrag.scale.ray_encoding.RayEncoding`, which the command line
            gives.
    """
    settings = resolve(IndexSettings, "index", flags)
    watcher = watcher or SilentWatcher()
    for name in ("workers", "address"):
        if settings.on == "here" and flags.get(name) is not None:
            raise InputError(f"--{name} goes with --on ray")
    kind = settings.kind or ("dense" if settings.of_a_dense_index else "bm25")
    if kind == "bm25":
        for name in settings.of_a_dense_index:
            if flags.get(name) is not None:  # settings from other sources may be meant for other commands
                raise InputError(f"--{name.replace('_', '-')} is for dense indexes: give --kind dense, or leave it out")
        if flags.get("on") == "ray":
            raise InputError("--on ray is for dense indexes: give --kind dense, or leave it out")
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
    if settings.on == "here":
        return directory, build_dense(corpus, directory, options, watcher)
    if launch is None:
        raise InputError("--on ray is carried out by the command line; from Python give `launch`, too")
    with launch(address=settings.address, workers=settings.workers, say=watcher.say) as encoding:
        return directory, build_dense(corpus, directory, options, watcher, encoding)
