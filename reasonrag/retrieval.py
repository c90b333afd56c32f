"""The seam to search over passages, and its first implementation: BM25 on disk.

Decides how an index directory looks (its `manifest.json` means a finished build), when one is reused and when it is
built again. Does not know who asks or what for.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from reasonrag.corpora import Corpus, Passage, scan_corpus
from reasonrag.errors import InputError, RetrievalError

MANIFEST = "manifest.json"
OFFSETS = "offsets.npy"
BM25_K1 = 1.2
BM25_B = 0.75
"""Robertson's usual k1 and b; the figures in the tests and benchmarks were measured with them."""

SEARCHED_AT_ONCE = 50_000
"""Passages up to which a search takes less time than a thread's round trip is worth."""
SEARCHES_KEPT = 4096
"""Siblings and continuations of a tree often ask the same; the latest results are at hand."""
_LOADING = threading.Lock()
"""NumPy reads a file's header with `ast`, which Python 3.11 cannot do in two threads at a time (cpython#106905)."""


class Retriever(Protocol):
    """Anything that finds passages for a query."""

    identity: str
    """Changes whenever the same query could find other passages: a part of every run's configuration hash."""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first, equal scores in corpus order. Raises RetrievalError."""
        ...


class IndexManifest(BaseModel):
    """What an index was built from and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["reasonrag.index/1"] = "reasonrag.index/1"
    kind: Literal["bm25"]
    corpus: str
    """Absolute path of the corpus; passages are read from there."""
    corpus_sha256: str
    corpus_bytes: int
    corpus_mtime_ns: int
    passages: int
    k1: float
    b: float
    stemmer: str
    stopwords: str
    versions: dict[str, str]


class BM25Retriever:
    """BM25 over title and text, memory-mapped, with English stemming and stop words.

    Raises InputError for an index some of whose files are missing or damaged.
    """

    def __init__(self, directory: Path, manifest: IndexManifest) -> None:
        import bm25s

        words = f"{manifest.stemmer}:{manifest.stopwords}"
        self.identity = f"bm25:{manifest.corpus_sha256[:16]}:k1={manifest.k1}:b={manifest.b}:{words}"
        self.manifest = manifest
        try:
            with _LOADING:
                self._corpus = Corpus(Path(manifest.corpus), np.load(directory / OFFSETS))
                self._index = bm25s.BM25.load(directory, mmap=True, load_corpus=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                f"the index {directory} has a manifest, but not all of its files ({error}). "
                f"Run: reasonrag index build --corpus {manifest.corpus} --out {directory}"
            ) from error
        self._tokens = _Tokenizer()
        self._found = lru_cache(SEARCHES_KEPT)(self._search)

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        if self.manifest.passages <= SEARCHED_AT_ONCE:
            return self.search(query, top_k)
        return await asyncio.to_thread(self.search, query, top_k)

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The same without an event loop. Passages that share no word with the query are never found."""
        return list(self._found(query, top_k))

    def _search(self, query: str, top_k: int) -> list[Passage]:
        tokens = [token for token in self._tokens([query])[0] if token in self._index.vocab_dict]
        if not tokens:
            return []
        scores = self._index.get_scores(tokens)
        rows = np.flatnonzero(scores > 0)
        if len(rows) > top_k:
            threshold = np.partition(scores[rows], len(rows) - top_k)[len(rows) - top_k]
            rows = rows[scores[rows] >= threshold]
        best = rows[np.argsort(-scores[rows], kind="stable")][:top_k]
        return [self._passage(int(row), float(scores[row])) for row in best]

    def _passage(self, row: int, score: float) -> Passage:
        try:
            passage = self._corpus[row]
        except InputError as error:
            raise RetrievalError(f"{error}. The corpus was changed while it was searched") from error
        return Passage(id=passage.id, title=passage.title, text=passage.text, score=round(score, 6))


def build_bm25(corpus: Path, directory: Path) -> IndexManifest:
    """Build a BM25 index of `corpus` in `directory`; an older one is replaced when the new one is whole.

    One builder at a time: others wait. Runs that have the older index open keep it.
    Raises InputError for a bad corpus (see `scan_corpus`) and where `directory` cannot be written.
    """
    with _building(directory):
        return _build(corpus, directory)


@contextmanager
def _building(directory: Path) -> Iterator[None]:
    """The right to build in `directory`, across processes."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = directory.with_name(f".{directory.name}.lock").open("wb")
    except OSError as error:
        raise _unwritable(directory, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(corpus: Path, directory: Path) -> IndexManifest:
    """Build beside `directory` and take its place: files that others have mapped are never written to."""
    if not corpus.is_file():
        raise InputError(f"there is no corpus {corpus}")
    stat = corpus.stat()  # before reading: a change while reading must make the index stale
    scan = scan_corpus(corpus)
    unfinished = directory.with_name(f".{directory.name}.building")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        passages = _index_words(corpus, scan.offsets, unfinished)
        np.save(unfinished / OFFSETS, scan.offsets)
        manifest = IndexManifest(
            kind="bm25",
            corpus=str(corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=stat.st_size,
            corpus_mtime_ns=stat.st_mtime_ns,
            passages=passages,
            k1=BM25_K1,
            b=BM25_B,
            stemmer="snowball-english",
            stopwords="bm25s-english",
            versions={name: version(name) for name in ("bm25s", "PyStemmer")},
        )
        (unfinished / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2))
        if directory.exists():
            _remove_index(directory)
        unfinished.rename(directory)
    except OSError as error:
        raise _unwritable(directory, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return manifest


def _index_words(corpus: Path, offsets: npt.NDArray[np.int64], directory: Path) -> int:
    """Index title and text of every passage into `directory`; their number."""
    import bm25s

    texts = [f"{each.title}\n{each.text}" for each in Corpus(corpus, offsets)]
    tokens = _Tokenizer()(texts)
    if not any(tokens):
        raise InputError(f"{corpus} holds no word that could be searched for, stop words apart")
    index = bm25s.BM25(k1=BM25_K1, b=BM25_B)
    index.index(tokens, show_progress=False)
    index.save(directory)
    return len(texts)


def _remove_index(directory: Path) -> None:
    """Delete an index, and nothing else that a user may keep in the same place."""
    files = list(directory.iterdir())
    foreign = [each.name for each in files if not each.name.endswith((".index.npy", ".index.json", OFFSETS, MANIFEST))]
    if foreign:
        raise InputError(f"{directory} holds files that are no index ({foreign[0]}); choose another place for it")
    for each in files:
        each.unlink()
    directory.rmdir()


def _unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot write the index {directory}: {error.strerror}. Choose another place for it")


def index_place(corpus: Path, home: Path) -> Path:
    """Where the index of a corpus is kept by default: named after it, and after its path so that none collide."""
    path = corpus.resolve()
    name = path.parent.name if path.stem == "corpus" else path.stem
    return home / f"{name}-bm25-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def read_manifest(directory: Path) -> IndexManifest:
    """The manifest of a finished index. Raises InputError if there is none."""
    path = directory / MANIFEST
    try:
        return IndexManifest.model_validate(orjson.loads(path.read_bytes()))
    except FileNotFoundError as error:
        raise InputError(
            f"{directory} has no {MANIFEST}: its build did not finish. "
            f"Run: reasonrag index build --corpus FILE --out {directory}"
        ) from error
    except (OSError, orjson.JSONDecodeError, ValidationError) as error:
        raise InputError(f"{path} cannot be read as an index manifest: {error}") from error


def open_index(directory: Path) -> BM25Retriever:
    """A finished index. Raises InputError if there is none, or its corpus is missing or has changed."""
    manifest = read_manifest(directory)
    if not _is_current(manifest, Path(manifest.corpus)):
        raise InputError(
            f"the corpus {manifest.corpus} of the index {directory} is missing or has changed. "
            f"Run: reasonrag index build --corpus FILE --out {directory}"
        )
    return BM25Retriever(directory, manifest)


def is_built(directory: Path, corpus: Path) -> bool:
    """Whether `directory` holds a finished index of `corpus` as it is now. Raises InputError for a bad manifest."""
    return (directory / MANIFEST).exists() and _is_current(read_manifest(directory), corpus)


def open_or_build(directory: Path, corpus: Path, *, say: Callable[[str], None]) -> BM25Retriever:
    """The index of `corpus` in `directory`; built, with a message, if it is missing or out of date."""
    if is_built(directory, corpus):
        return BM25Retriever(directory, read_manifest(directory))
    with _building(directory):
        if is_built(directory, corpus):  # somebody else has built it while we waited
            return BM25Retriever(directory, read_manifest(directory))
        if (directory / MANIFEST).exists():
            say(f"{corpus} is not what {directory} was built from; building the index again")
        else:
            say(f"no index of {corpus} yet; building {directory}")
        return BM25Retriever(directory, _build(corpus, directory))


def _is_current(manifest: IndexManifest, corpus: Path) -> bool:
    """Whether the corpus is the file that was indexed, judged by path, size and time of change."""
    if not corpus.is_file() or str(corpus.resolve()) != manifest.corpus:
        return False
    stat = corpus.stat()
    return (stat.st_size, stat.st_mtime_ns) == (manifest.corpus_bytes, manifest.corpus_mtime_ns)


class _Tokenizer:
    """English stemming without stop words. The stemmer keeps state, so one thread at a time."""

    def __init__(self) -> None:
        import Stemmer

        self._stemmer = Stemmer.Stemmer("english")
        self._lock = threading.Lock()

    def __call__(self, texts: list[str]) -> Any:
        import bm25s

        with self._lock:
            return bm25s.tokenize(
                texts,
                stopwords="en",
                stemmer=self._stemmer,
                return_ids=False,
                show_progress=False,
            )
