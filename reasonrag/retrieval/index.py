"""`reasonrag index` and `search`: indexes are built, described, checked, searched and served."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel

from preference.records import PassageRef, shared_fields
from reasonrag.concurrency import run_to_end
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError
from reasonrag.files import build_lock, file_digest
from reasonrag.progress import BuildWatcher, SilentWatcher
from reasonrag.rendering import Part, Shown, Table
from reasonrag.retrieval.dense.build import BuildOptions, Encoding, build_dense
from reasonrag.retrieval.dense.encoders import EncoderChoice
from reasonrag.retrieval.dense.manifest import (
    MANIFEST,
    IndexManifest,
    current_manifest,
    damaged_files,
    default_index_directory,
    read_manifest,
)
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.opening import open_index, open_retriever
from reasonrag.retrieval.passage_length import cut
from reasonrag.retrieval.retriever import TOKEN_VARIABLE, IndexRetriever, Retriever
from reasonrag.retrieval.settings import (
    MAX_TOP_K,
    SNIPPET_CHARS,
    TOP_K,
    IndexKind,
    IndexSettings,
    RetrievalSettings,
    ServeSettings,
)
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.web.client import LOOPBACKS

LaunchEncoding: TypeAlias = Callable[[int | None, int], Encoding]
"""Makes an encoding elsewhere, by at most so many workers (None: as many as fit), in batches of so many passages."""


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
    if settings.on == "here" and flags.get("workers") is not None:
        raise InputError("--workers goes with --on ray")
    if settings.on == "ray" and settings.device:
        raise InputError("with --on ray each worker has the GPU or CPU that Ray gives it: leave out --device")
    kind: IndexKind = settings.kind or ("dense" if settings.of_a_dense_index else "bm25")
    if kind == "bm25":  # settings from other sources may be meant for other commands
        for name in (*settings.of_a_dense_index, "on"):
            if flags.get(name) not in (None, "here"):
                raise InputError(f"--{name.replace('_', '-')} is for dense indexes: give --kind dense, or leave it out")
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
    if kind == "dense" and settings.on == "ray":
        if launch is None:
            raise InputError("--on ray is carried out by the command line; from Python give `launch`, too")
        options = replace(options, devices=["cpu"], encoding=launch(settings.workers, settings.batch_size))
    corpus = plain_corpus(settings.corpus, settings.index_home, say=watcher.say)
    directory = settings.out or default_index_directory(corpus, settings.index_home, kind, settings.encoder)
    with build_lock(directory, say=watcher.say):
        if kind == "bm25":
            return directory, build_bm25(corpus, directory, watcher, settings.language)
        return directory, build_dense(corpus, directory, options, watcher)


class IndexCheck(BaseModel, Shown, frozen=True):
    """Result of a check. faults: one line each; empty if everything is consistent."""

    directory: Path
    manifest: IndexManifest
    faults: list[str]

    def shown(self) -> Iterator[Part]:
        faults = [("fault", each) for each in self.faults] or [("sound", "corpus and files are unchanged")]
        yield Table(f"{self.manifest.kind} index  {self.directory}", [*self.manifest.rows(), *faults])


@public_call()
def index_check(directory: Path | str, *, watcher: BuildWatcher | None = None) -> IndexCheck:
    """Check a whole index and its corpus by their hashes. Raises InputError if there is no index.

    Example:
        >>> reasonrag.index_check("indexes/handbook").faults
        []

    Args:
        directory: of an index.
        watcher: is told what happens while it goes on; none: silent.
    """
    place, watcher = Path(directory), watcher or SilentWatcher()
    manifest = read_manifest(place)
    watcher.say(f"reading the files of {place}")
    faults = [*damaged_files(place, manifest, manifest.files).values()]
    watcher.say(f"reading {manifest.corpus}")
    corpus = Path(manifest.corpus)
    if not corpus.is_file() or file_digest(corpus) != manifest.corpus_sha256:
        faults.append(f"the corpus {corpus} is not the one that was indexed")
    else:
        current_manifest(place, corpus)  # updates the manifest of a corpus that was only touched
    if not faults and manifest.kind == "bm25":
        try:
            open_index(place)
        except InputError as error:
            faults.append(str(error))
    return IndexCheck(directory=place, manifest=manifest, faults=faults)


class FoundPassage(PassageRef):
    """snippet: how its text begins."""

    snippet: str


class SearchResult(BaseModel, Shown):
    """What a query finds, best first. retriever: its identity. tokens: what BM25 searched for, if it was BM25 alone."""

    query: str
    retriever: str
    tokens: list[str]
    fallback: bool
    """Whether the corpus has no word of the query, and only similar ones were found."""
    passages: list[FoundPassage]

    def shown(self) -> Iterator[Part]:
        """What a query finds, and by which words; a server says none."""
        how = ["similar to the query's words, of which the corpus has none"] if self.fallback else []
        words = [", ".join(map(str.strip, self.tokens))] if self.tokens else []
        found = [(f"{each.score or 0:.3f}", f"{each.title}: {each.snippet}  [{each.id}]") for each in self.passages]
        nothing = ("nothing found", "the corpus has no such word, and none like it")
        yield Table(self.query, [("searched for", ": ".join(how + words)), *(found or [nothing])])


@public_call(RetrievalSettings, without=("index", "retriever"))
def search(
    place: Path | str, query: str, *, top_k: int = TOP_K, say: Callable[[str], None] = print, **flags: Any
) -> SearchResult:
    """Search an index, or a corpus, whose index is built if missing. Raises InputError if it is neither.

    Example:
        >>> [each.title for each in reasonrag.search("indexes/handbook", "14 months").passages]
        ['Leave > Parents']

    Args:
        place: directory of an index, file of a corpus, or address of a retrieval server.
        query: what to search for.
        top_k: most passages to find.
        say: told when an index is built.
    """
    if not isinstance(query, str) or not query.strip():
        raise InputError("the query is empty; give what to search for")
    query = query.encode("utf-8", errors="replace").decode()  # no lone surrogates
    if not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
        raise InputError(f"top_k is {top_k!r}; a search gives 1 to {MAX_TOP_K:,} passages")
    where: dict[str, Any] = {"retriever": str(place)} if "://" in str(place) else {"index": [Path(place)]}
    corpus = Path(place) if Path(place).is_file() else None
    if not corpus and "index" in where and not (Path(place) / MANIFEST).is_file():
        wrong = "is no index" if Path(place).is_dir() else "does not exist"
        raise InputError(
            f"{place} {wrong}: give the folder of an index, or the JSONL file of a corpus (`reasonrag corpus build` "
            "makes one of a folder of documents)"
        )
    settings = resolve(RetrievalSettings, "search", flags | ({} if corpus else where))

    async def found() -> tuple[Retriever, list[Passage]]:
        async with AsyncExitStack() as opened:
            retriever = await open_retriever(settings, corpus, opened, say=say)
            return retriever, await retriever.retrieve(query, top_k)

    retriever, passages = run_to_end(found())
    return SearchResult(
        query=query,
        retriever=retriever.identity,
        tokens=retriever.tokens(query) if isinstance(retriever, IndexRetriever) else [],
        fallback=any(each.fallback for each in passages),
        passages=[FoundPassage(**asdict(each), snippet=cut(each.text, SNIPPET_CHARS)) for each in passages],
    )


@public_call(ServeSettings)
def index_serve(
    *, say: Callable[[str], None] = print, listening: Callable[[str], None] = lambda _: None, **flags: Any
) -> None:
    """Serve an index over HTTP until SIGTERM or Ctrl-C, in the protocol of Search-R1's retrieval server.

    Raises InputError for a bad index or address.

    Example:
        >>> reasonrag.index_serve(index="indexes/handbook", port=8977)  # doctest: +SKIP

    Args:
        say: receives what is reported while it runs.
        listening: called with the address once the server accepts requests.
    """
    settings = resolve(ServeSettings, "serve", flags)
    if settings.is_remote or not (settings.index or settings.corpus):
        raise InputError("give --index DIR of a built index, or --corpus FILE, whose index is built if missing")
    from reasonrag.retrieval.server import serving
    from reasonrag.web.server import serve_until_stopped

    async def served() -> None:
        async with AsyncExitStack() as opened:
            token = os.environ.get(TOKEN_VARIABLE) or None
            retriever = await open_retriever(settings, settings.corpus, opened, named=True, say=say)
            if token is None and settings.host not in LOOPBACKS:
                say(
                    f"warning: anyone who can reach {settings.host} can search; set {TOKEN_VARIABLE} to require a token"
                )
            service = serving(
                retriever, host=settings.host, port=settings.port, allow_host=settings.allow_host, token=token
            )
            await serve_until_stopped(service, say=listening)

    run_to_end(served())
