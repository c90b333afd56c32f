"""`reasonrag index`: indexes made ahead of the run that needs them, described and checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from reasonrag.concurrency import run_to_end
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.corpus import scan_corpus
from reasonrag.data.questions import open_questions
from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.build_progress import BuildWatcher
from reasonrag.retrieval.dense.check import RecallAgainstExact, check_dense
from reasonrag.retrieval.dense.encoders import MINILM, EncoderChoice, short_name
from reasonrag.retrieval.dense.manifest import (
    OFFSETS,
    DenseManifest,
    IndexManifest,
    current_manifest,
    default_index_directory,
    read_manifest,
)
from reasonrag.retrieval.from_settings import is_remote, open_corpus, open_index, open_retriever
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.recall import RecallReport, measure_recall
from reasonrag.retrieval.retriever import TOKEN_VARIABLE
from reasonrag.retrieval.settings import IndexSettings, ServeSettings
from reasonrag.settings import resolve
from reasonrag.web import LOOPBACK

LOOPBACKS = (LOOPBACK, "::1", "localhost")


def index_build(*, watcher: BuildWatcher | None = None, **flags: Any) -> tuple[Path, IndexManifest]:
    """Build an index and say where; the keyword arguments are the command's flags (`from_faiss`: `--from-faiss`).

    Without `out` it goes where `generate` will look for it. A dense build that was killed goes on where it was; of
    vectors that are there another type is built without encoding again. Raises InputError for a bad corpus, encoder or
    place.
    """
    settings = resolve(IndexSettings, "index", flags)
    watcher = watcher or SilentWatcher()
    kind = settings.kind or ("dense" if settings.of_a_dense_index else "bm25")
    if kind == "bm25":
        for name in settings.of_a_dense_index:
            if flags.get(name) is not None:  # what is set elsewhere may be meant for other commands
                raise InputError(f"--{name.replace('_', '-')} is of a dense index: give --kind dense, or leave it out")
    corpus = plain_corpus(settings.corpus, settings.index_home, say=watcher.say)
    if kind == "bm25":
        directory = settings.out or default_index_directory(corpus, settings.index_home)
        return directory, build_bm25(corpus, directory, watcher)
    model = settings.encoder or MINILM
    directory = settings.out or default_index_directory(corpus, settings.index_home, f"dense-{short_name(model)}")
    given = {
        "model": settings.encoder,
        "backend": settings.backend,
        "pooling": settings.pooling,
        "normalize": settings.normalize,
        "query_instruction": settings.query_instruction,
        "passage_instruction": settings.passage_instruction,
        "max_length": settings.max_length,
    }
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


def index_info(directory: Path | str) -> IndexManifest:
    """What an index says about itself. Raises InputError if there is none."""
    return read_manifest(Path(directory))


class IndexCheck(BaseModel):
    """What a check found. faults: one line each; empty where everything belongs together."""

    model_config = ConfigDict(frozen=True)

    directory: Path
    manifest: IndexManifest
    faults: list[str]
    recalls: list[RecallAgainstExact]
    found: RecallReport | None = None
    """What the index finds of a question file, where one was given and nothing is at fault."""


def index_check(
    directory: Path | str,
    *,
    queries: int = 200,
    at: int = 10,
    questions: Path | str | None = None,
    watcher: BuildWatcher | None = None,
) -> IndexCheck:
    """Read an index and its corpus whole: hashes, row counts, and recall of every faiss index against an exact search.

    queries: how many are asked; at: passages compared per query. questions: a file of questions, each asked as it
    stands, to see how many of their gold passages are found and how many of their answers stand in what is found.
    Raises InputError where there is no index, and for a bad question file.
    """
    place, watcher = Path(directory), watcher or SilentWatcher()
    source = open_questions(Path(questions), dataset=Path(questions).stem, split="") if questions else None
    manifest = read_manifest(place)
    watcher.say(f"reading {manifest.corpus}")
    faults = _check_corpus(place, manifest)
    recalls: list[RecallAgainstExact] = []
    if isinstance(manifest, DenseManifest):
        broken, recalls = check_dense(place, manifest, queries=queries, at=at, watcher=watcher)
        faults += broken
    elif not faults:
        faults += _what_is_wrong(lambda: open_index(place))
    found = None
    if source and not faults:
        watcher.say(f"asking the {source.total:,} questions of {source.path}")
        found = measure_recall(open_index(place), source.read())
    return IndexCheck(directory=place, manifest=manifest, faults=faults, recalls=recalls, found=found)


def _check_corpus(directory: Path, manifest: IndexManifest) -> list[str]:
    """The corpus as it is now, line by line, against what was indexed."""
    try:
        scan = scan_corpus(Path(manifest.corpus))
        if scan.sha256 != manifest.corpus_sha256:
            return [f"the corpus {manifest.corpus} is not what was indexed"]
        current_manifest(directory, Path(manifest.corpus))  # one that was only touched is acknowledged
        if not np.array_equal(open_corpus(directory, manifest).offsets, scan.offsets):
            return [f"{OFFSETS} does not say where the passages are; delete it and build the index again"]
    except InputError as error:
        return [str(error)]
    return []


def _what_is_wrong(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except InputError as error:
        return [str(error)]
    return []


def index_serve(
    *, say: Callable[[str], None] = print, listening: Callable[[str], None] = lambda _: None, **flags: Any
) -> None:
    """Serve an index over HTTP until SIGTERM or Ctrl-C; the keyword arguments are the command's flags.

    listening: told the address once requests are taken. Raises InputError for a bad index or address.
    """
    settings = resolve(ServeSettings, "serve", flags)
    if not settings.index and settings.corpus is None and not is_remote(settings):
        raise InputError("give --index DIR of a built index, or --corpus FILE whose index is built if it is missing")
    run_to_end(_serve(settings, say, listening))


async def _serve(settings: ServeSettings, say: Callable[[str], None], listening: Callable[[str], None]) -> None:
    try:
        from reasonrag.retrieval.server import ServeLimits, serve_forever
    except ImportError as error:
        raise InputError(
            f"serving needs the serve extra ({error.name} is missing): pip install 'reasonrag[serve]'"
        ) from error

    async with AsyncExitStack() as opened:
        retriever = await open_retriever(settings, settings.corpus, opened, say=say)
        token = os.environ.get(TOKEN_VARIABLE) or None
        if token is None and settings.host not in LOOPBACKS:
            say(
                f"warning: whoever reaches {settings.host} may search; set {TOKEN_VARIABLE} to let in only who knows it"
            )
        await serve_forever(
            retriever,
            host=settings.host,
            port=settings.port,
            limits=ServeLimits(max_waiting=settings.max_waiting, allow_empty=settings.allow_empty_queries),
            token=token,
            say=listening,
            passages=getattr(retriever, "passages", None),
        )
