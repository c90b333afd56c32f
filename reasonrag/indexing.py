"""`reasonrag index`: indexes made ahead of the run that needs them, described and checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from reasonrag.bm25 import build_bm25
from reasonrag.building import BuildWatcher, SilentBuild
from reasonrag.concurrency import run_to_end
from reasonrag.dense import BuildOptions, Recall, build_dense, check_dense, encoder_name
from reasonrag.encoders import MINILM, EncoderChoice
from reasonrag.errors import InputError
from reasonrag.manifests import DenseManifest, IndexManifest, index_place, read_manifest
from reasonrag.questions import open_questions
from reasonrag.recall import RecallReport, measure_recall
from reasonrag.retrieval import TOKEN_VARIABLE
from reasonrag.searching import is_remote, open_corpus, open_index, open_retriever
from reasonrag.settings import IndexSettings, ServeSettings, resolve
from reasonrag.unpacking import plain_corpus

LOOPBACKS = ("127.0.0.1", "::1", "localhost")


def index_build(*, watcher: BuildWatcher | None = None, **flags: Any) -> tuple[Path, IndexManifest]:
    """Build an index and say where; the keyword arguments are the command's flags (`from_faiss`: `--from-faiss`).

    Without `out` it goes where `generate` will look for it. A dense build that was killed goes on where it was; of
    vectors that are there another type is built without encoding again. Raises InputError for a bad corpus, encoder or
    place.
    """
    settings = resolve(IndexSettings, "index", flags)
    watcher = watcher or SilentBuild()
    kind = settings.kind or ("dense" if settings.of_a_dense_index else "bm25")
    if kind == "bm25" and settings.of_a_dense_index:
        flag = settings.of_a_dense_index[0].replace("_", "-")
        raise InputError(f"--{flag} is of a dense index: give --kind dense, or leave it out")
    corpus = plain_corpus(settings.corpus, settings.index_home, say=watcher.say)
    if kind == "bm25":
        directory = settings.out or index_place(corpus, settings.index_home)
        return directory, build_bm25(corpus, directory, watcher)
    model = settings.encoder or MINILM
    directory = settings.out or index_place(corpus, settings.index_home, f"dense-{encoder_name(model)}")
    options = BuildOptions(
        encoder=EncoderChoice(
            model=model,
            backend=settings.backend,
            pooling=settings.pooling,
            normalize=settings.normalize,
            query_instruction=settings.query_instruction,
            passage_instruction=settings.passage_instruction,
            max_length=settings.max_length,
        ),
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
    recalls: list[Recall]
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
    place, watcher = Path(directory), watcher or SilentBuild()
    source = open_questions(Path(questions), dataset=Path(questions).stem, split="") if questions else None
    manifest = read_manifest(place)
    watcher.say(f"reading {manifest.corpus}")
    faults = _check_corpus(manifest)
    faults += _check_rows(place, manifest)
    recalls: list[Recall] = []
    if isinstance(manifest, DenseManifest):
        broken, recalls = check_dense(place, manifest, queries=queries, at=at, watcher=watcher)
        faults += broken
    found = None
    if source and not faults:
        watcher.say(f"asking the {source.total:,} questions of {source.path}")
        found = measure_recall(open_index(place).search, source.read())
    return IndexCheck(directory=place, manifest=manifest, faults=faults, recalls=recalls, found=found)


def _check_corpus(manifest: IndexManifest) -> list[str]:
    corpus = Path(manifest.corpus)
    if not corpus.is_file():
        return [f"the corpus {corpus} is missing"]
    with corpus.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return [] if digest == manifest.corpus_sha256 else [f"the corpus {corpus} is not what was indexed"]


def _check_rows(directory: Path, manifest: IndexManifest) -> list[str]:
    try:
        open_corpus(directory, manifest)
        if manifest.kind == "bm25":
            open_index(directory)
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
    from reasonrag.serving import ServeLimits, serve_forever

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
