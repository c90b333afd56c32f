"""Opens the retriever that settings describe: which indexes, built if missing, or a remote server.

Does not know how an index is built or searched, nor what a run is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reasonrag.data.compressed import plain_corpus
from reasonrag.data.corpus import Corpus
from reasonrag.data.documents.language import recorded_languages
from reasonrag.errors import InputError, choices
from reasonrag.files import build_lock
from reasonrag.progress import PlainBuildWatcher
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.encoders import EncoderChoice
from reasonrag.retrieval.dense.index import DenseIndex, open_encoder
from reasonrag.retrieval.dense.manifest import (
    CHECKED_AT_OPENING,
    MANIFEST,
    OFFSETS,
    BM25Manifest,
    DenseManifest,
    IndexManifest,
    build_again,
    current_manifest,
    damaged_files,
    default_index_directory,
    incomplete_index,
    read_manifest,
)
from reasonrag.retrieval.lexical.analysis import ANALYSER
from reasonrag.retrieval.lexical.bm25 import BM25Index, build_bm25
from reasonrag.retrieval.ranking import LOADING, HybridIndex, Ranking
from reasonrag.retrieval.retriever import TOKEN_VARIABLE, IndexRetriever, Retriever
from reasonrag.retrieval.settings import IndexKind, RetrievalSettings
from reasonrag.web.client import shown_url

KINDS: dict[str, tuple[IndexKind, ...]] = {"bm25": ("bm25",), "dense": ("dense",), "hybrid": ("dense", "bm25")}
UNFIT: dict[str, tuple[str, ...]] = {"bm25": ("encoder", "gpu"), "dense": ("language",), "hybrid": ()}
"""Flags that go with no index of these kinds."""


def object_or_name(retriever: Retriever | str | None) -> tuple[Retriever | None, dict[str, str]]:
    """Splits a Python call's `retriever` argument into an object, or the flag that names one."""
    return (None, {"retriever": retriever}) if isinstance(retriever, str) else (retriever, {})


async def open_retriever(
    settings: RetrievalSettings,
    corpus: Path | None,
    opened: AsyncExitStack,
    *,
    named: bool = False,
    top_k: int = 1,
    say: Callable[[str], None],
    before_building: Sequence[Callable[[], Awaitable[object]]] = (),
) -> Retriever:
    """The retriever that the settings describe.

    corpus: its indexes are built if missing; None: the corpus of --index. named: whether the user named this corpus, so
        that an index must be of it. top_k: passages that a server is tried with. before_building: awaited before a long
        build. opened: closes the retriever's resources. Raises InputError for indexes that are missing, damaged, of
        another corpus or by another encoder, and for a server that does not answer.
    """
    if settings.is_remote:
        from reasonrag.retrieval.remote import open_remote

        _refuse(settings, ("index", "encoder", "language", "gpu"))
        remote = await open_remote(settings.retriever or "", token=os.environ.get(TOKEN_VARIABLE) or None, top_k=top_k)
        opened.push_async_callback(remote.close)
        if remote.foreign:
            say(
                f"warning: {remote.url} does not report which index it serves: make sure that it does not change "
                "during the run or before the run is resumed"
            )
        return remote
    places = _places(settings, corpus, named=named, say=say)
    if any(each.usable is None for each in places):
        for each in before_building:
            await each()
    watcher = PlainBuildWatcher(say)
    try:
        return await asyncio.to_thread(open_index_places, places, settings, watcher)
    except asyncio.CancelledError:  # of Ctrl-C, which is handled while the thread works
        watcher.stopped.set()
        raise


def _refuse(settings: RetrievalSettings, flags: Iterable[str]) -> None:
    """Raises InputError for a flag that the retriever has no use for."""
    for name in flags:
        if getattr(settings, name):
            flag, retriever = name.replace("_", "-"), shown_url(settings.retriever or "")
            raise InputError(f"--{flag} is not for --retriever {retriever}; leave it out")


@dataclass(frozen=True)
class IndexPlace:
    """Directory of an index of a corpus: a finished one that the user named, or the default, where it may be built."""

    kind: IndexKind
    directory: Path
    corpus: Path

    @property
    def usable(self) -> IndexManifest | None:
        """The manifest of the index that is there, if usable as it is."""
        manifest = current_manifest(self.directory, self.corpus)
        return manifest if manifest and manifest.kind == self.kind else None


def _places(
    settings: RetrievalSettings, corpus: Path | None, *, named: bool = False, say: Callable[[str], None]
) -> list[IndexPlace]:
    """The indexes that are needed, one of each kind. Raises InputError if the settings are ambiguous."""
    there = {each: read_manifest(each) for each in settings.index}
    given = [each.kind for each in there.values()]
    kinds = _kinds(settings, given)
    if len({*given} & {*kinds}) < len(given):
        shown = " and ".join(f"{each} ({its.kind})" for each, its in there.items())
        raise InputError(
            f"--index was given {shown}, and what is searched is one index of {' and one of '.join(kinds)}"
        )
    own = plain_corpus(corpus, settings.index_home, say=say) if there and named and corpus else None
    places = [_given(directory, manifest, own) for directory, manifest in there.items()]
    if missing := [kind for kind in kinds if kind not in given]:
        source = corpus or next(each.corpus for each in places)
        plain = plain_corpus(source, settings.index_home, say=say)
        for kind in missing:
            directory = default_index_directory(plain, settings.index_home, kind, settings.encoder)
            places.append(IndexPlace(kind, directory, plain))
    return sorted(places, key=lambda each: kinds.index(each.kind))


def _given(directory: Path, manifest: IndexManifest, named: Path | None) -> IndexPlace:
    """An index named by the user, which is never overwritten. Raises InputError if it is not of the named corpus, or
    its corpus is missing or has changed: passages are read from it by offset."""
    corpus = named or Path(manifest.corpus)
    if current_manifest(directory, corpus) is not None:
        return IndexPlace(manifest.kind, directory, corpus)
    if named:
        raise InputError(
            f"{directory} is the index of {manifest.corpus}, not of {named}; "
            "leave out --corpus or choose another --index"
        )
    raise _changed_corpus(directory, manifest)


def _changed_corpus(directory: Path, manifest: IndexManifest) -> InputError:
    again = f"reasonrag index build --corpus FILE --out {directory}"
    if isinstance(manifest, DenseManifest):
        again = f"delete the index and run: {again} --encoder {manifest.encoder.model}"
    return InputError(
        f"the corpus {manifest.corpus} of the index {directory} is missing or has changed. Restore it, name it by "
        f"--corpus if it was moved, or build the index again: {again}"
    )


def _kinds(settings: RetrievalSettings, given: Sequence[IndexKind]) -> tuple[IndexKind, ...]:
    if settings.retriever is None:
        kinds = {*given, *(KINDS["dense"] if settings.encoder else ())}
        return KINDS["hybrid"] if len(kinds) > 1 else tuple(kinds) or KINDS["bm25"]
    if settings.retriever not in KINDS:
        named = shown_url(settings.retriever)
        raise InputError(f"--retriever {named}: {choices(named, KINDS)}, or http://host:port of a server")
    _refuse(settings, UNFIT[settings.retriever])
    return KINDS[settings.retriever]


def open_index_places(
    places: Sequence[IndexPlace], settings: RetrievalSettings, watcher: PlainBuildWatcher
) -> IndexRetriever:
    """The indexes as one retriever; missing ones are built, with a message."""
    choice = EncoderChoice(model=settings.encoder) if settings.encoder else None
    found = [(each.directory, _built(each, settings, choice or EncoderChoice(), watcher)) for each in places]
    if len({its.corpus_sha256 for _, its in found}) > 1:
        shown = " and ".join(f"{directory} of {its.corpus}" for directory, its in found)
        raise InputError(f"{shown}: these indexes were built from different corpora")
    for directory, its in found:
        if isinstance(its, BM25Manifest):
            _refuse_other_words(directory, its, settings.language)
        _refuse_damage(directory, its)
    rankings: list[Ranking] = [
        BM25Index(directory, its)
        if isinstance(its, BM25Manifest)
        else DenseIndex(directory, its, open_encoder(its, choice), gpu=settings.gpu)
        for directory, its in found
    ]
    index = rankings[0] if len(rankings) == 1 else HybridIndex(rankings)
    directory, its = found[0]
    try:
        with LOADING:
            corpus = Corpus(Path(its.corpus), np.load(directory / OFFSETS, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        raise incomplete_index(directory, its, error) from error
    return IndexRetriever(corpus, index)


def _refuse_other_words(directory: Path, manifest: BM25Manifest, languages: Sequence[str]) -> None:
    """Raises InputError for an index whose tokens are not those of today's queries. languages: wanted; none: those that
    `corpus build` wrote, or any."""
    wanted = languages or recorded_languages(Path(manifest.corpus), manifest.corpus_sha256) or manifest.languages
    if (manifest.analyser, {*manifest.languages}) != (ANALYSER, {*wanted}):
        given = "".join(f" --language {each}" for each in languages)
        raise InputError(
            f"{directory} was built by analyser {manifest.analyser} for {'+'.join(manifest.languages)}, and queries "
            f"are read by analyser {ANALYSER} for {'+'.join(wanted)}. "
            f"Run: {build_again(manifest, directory)}{given}"
        )


def _refuse_damage(directory: Path, manifest: IndexManifest) -> None:
    """Raises InputError for a file of the wrong size, and for a small one of other content; `index check` reads all."""
    names = {*manifest.files}
    if isinstance(manifest, DenseManifest):
        names = {OFFSETS, manifest.vectors, manifest.file.file}
    for fault in damaged_files(directory, manifest, sorted(names), most_bytes=CHECKED_AT_OPENING).values():
        raise InputError(f"the index {directory} is damaged: {fault}")


def _built(
    place: IndexPlace, settings: RetrievalSettings, choice: EncoderChoice, watcher: PlainBuildWatcher
) -> IndexManifest:
    """The manifest at a place, building the index if it is missing. Raises InputError for a dense index whose corpus
    has changed: it took hours, so only the user may discard it."""
    if (found := place.usable) is not None:
        return found
    corpus, directory = place.corpus, place.directory
    with build_lock(directory, say=watcher.say):
        if (found := place.usable) is not None:  # another process built it while we waited
            return found
        replaced = read_manifest(directory) if (directory / MANIFEST).exists() else None
        if isinstance(replaced, DenseManifest):
            raise _changed_corpus(directory, replaced)
        again = f"{corpus} has changed since {directory} was built; building the index again"
        watcher.say(again if replaced else f"no index of {corpus} yet; building {directory}")
        if place.kind == "bm25":
            return build_bm25(corpus, directory, watcher, settings.language)
        return build_dense(corpus, directory, BuildOptions(encoder=choice), watcher)


def open_index(*directories: Path) -> IndexRetriever:
    """Open a finished index of any kind, or one of each kind as a hybrid. Raises InputError if there is none, or its
    corpus is missing or has changed."""
    settings, watcher = RetrievalSettings(index=list(directories)), PlainBuildWatcher(lambda _: None)
    return open_index_places(_places(settings, None, say=watcher.say), settings, watcher)
