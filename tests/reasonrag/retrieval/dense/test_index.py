"""Dense indexes: built once, resumed after a kill, refused where something does not belong together, searched alike by
one and by many; and their vectors on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.errors import InputError, RetrievalError
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.encoders import Encoder, EncoderChoice, load_encoder
from reasonrag.retrieval.dense.index import DenseIndex
from reasonrag.retrieval.dense.manifest import DenseManifest, read_manifest
from reasonrag.retrieval.dense.vector_pieces import ENCODED, PIECE, VECTORS, StoredVectors, VectorWriter, row_ranges
from reasonrag.retrieval.index import index_check
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.opening import open_index
from reasonrag.retrieval.ranking import Ranked
from reasonrag.retrieval.retriever import BATCH, IndexRetriever
from reasonrag.retrieval.settings import IndexType
from tests.helpers.jsonl import append_a_passage, write_passages, write_rows
from tests.helpers.listener import Listener

faiss = pytest.importorskip("faiss", reason="the index extra is not installed")
HASHING = EncoderChoice(model="hashing-64")
WORDS = "river town film director capital north king poet born city album song team player french lake hill".split()


class Listening(Listener):
    """A build's watcher that keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: dict[str, list[int]] = {}
        self._stage: list[int] = []

    def stage(self, name: str, *, total: int, done: int = 0) -> None:
        self._stage = self.stages.setdefault(name, [])
        self._stage += [total, done]

    def reached(self, done: int) -> None:
        self._stage.append(done)

    def ended(self) -> None:
        self.stages["ended"] = []


def write_corpus(path: Path, count: int = 40, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    texts = [rng.choice(WORDS, size=12) for _ in range(count)]
    passages = ((f"p{i}", f"{text[0].title()} {i}", f"{' '.join(text)} number{i}") for i, text in enumerate(texts))
    return write_passages(path, passages)


def options(
    index_type: IndexType | None = None, model: str = "hashing-64", from_faiss: Path | None = None
) -> BuildOptions:
    return BuildOptions(encoder=EncoderChoice(model=model), index_type=index_type, from_faiss=from_faiss)


def built(home: Path, count: int = 40, index_type: IndexType = "flat") -> tuple[Path, Path, DenseManifest]:
    """A corpus, an index of it, and its manifest."""
    corpus, index = write_corpus(home / "corpus.jsonl", count), home / "index"
    return corpus, index, build_dense(corpus, index, options(index_type))


def refused(message: str, corpus: Path, index: Path, how: BuildOptions | None = None) -> None:
    with pytest.raises(InputError, match=message):
        build_dense(corpus, index, how or options())


def found(retriever: IndexRetriever, query: str, top_k: int = 5) -> list[str]:
    return [each.id for each in retriever.search(query, top_k)]


# -- building --------------------------------------------------------------------------------------------------


def test_another_type_is_built_from_the_stored_vectors(tmp_path: Path) -> None:
    """Nothing is encoded again, and whatever was set when they were made need not be repeated; the type built last is
    searched, the others stay at hand."""
    corpus, index = write_corpus(tmp_path / "corpus.jsonl", 1500), tmp_path / "index"
    choice = EncoderChoice(model="hashing-64", max_length=20)
    first = build_dense(corpus, index, BuildOptions(encoder=choice, index_type="flat"))
    before = (index / "vectors.npy").stat().st_mtime_ns
    watcher = Listening()
    for index_type in ("sq8", "hnsw", "ivf-sq", "ivf-pq"):
        manifest = build_dense(corpus, index, BuildOptions(index_type=index_type), watcher)
        assert manifest.searched == index_type
    assert "encoding" not in watcher.stages
    assert not any("encoder" in each for each in watcher.said), "none is loaded"
    assert (index / "vectors.npy").stat().st_mtime_ns == before
    assert set(manifest.indexes) == {"flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"}
    assert manifest.indexes["flat"] == first.indexes["flat"]
    assert index_check(index, watcher=watcher).faults == []
    queries = [f"{first} {second}" for first in WORDS for second in WORDS]
    exact = rows_of(index, manifest, "flat", queries)
    for index_type in manifest.indexes:
        rows = rows_of(index, manifest, index_type, queries)
        recall = sum(len(one & other) for one, other in zip(rows, exact, strict=True)) / (5 * len(queries))
        assert recall >= (0.9 if "ivf" in index_type else 0.99), index_type
    assert build_dense(corpus, index, BuildOptions(index_type="flat")).searched == "flat"


def rows_of(index: Path, manifest: DenseManifest, index_type: IndexType, queries: list[str]) -> list[set[int]]:
    """The five rows that each query finds."""
    return [set(each.rows.tolist()) for each in opened(index, manifest, index_type).rank(queries, 5)]


def opened(index: Path, manifest: DenseManifest, index_type: IndexType) -> DenseIndex:
    """Of the types that it has, this one."""
    return DenseIndex(index, manifest.model_copy(update={"searched": index_type}), load_encoder(HASHING))


def test_a_type_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    """Unless its file is cut off."""
    corpus, index, manifest = built(tmp_path)
    watcher = Listening()
    assert build_dense(corpus, index, options("flat"), watcher) == build_dense(corpus, index, options()) == manifest
    assert watcher.said[-1] == f"{index} already has its flat index"
    path = index / "hashing-64_Flat.index"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    build_dense(corpus, index, options("flat"), watcher)
    assert path.read_bytes() == whole


def test_a_corpus_that_is_the_same_to_the_byte_is_not_encoded_again(tmp_path: Path) -> None:
    """Wherever it lies and whenever it was written: hours are not thrown away for a date."""
    corpus, index, manifest = built(tmp_path)
    identity, watcher = open_index(index).identity, Listening()
    os.utime(corpus, ns=(1, 1))
    for place in (corpus, tmp_path / "moved.jsonl"):
        corpus = corpus.rename(place)
        kept = build_dense(corpus, index, options(), watcher)
        assert "encoding" not in watcher.stages
        assert (kept.vectors_sha256, kept.corpus) == (manifest.vectors_sha256, str(place))
        assert open_index(index).identity == identity


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("offsets.npy", r"holds files that do not belong to an index \(offsets\.npy\)"),
        ("e5_Flat.index", r"holds files that do not belong to an index \(e5_Flat\.index\)"),
        (".env", r"holds files that do not belong to an index \(\.env\)"),
        ("folder/x", r"holds files that do not belong to an index \(folder\)"),
        ("", "index is a file; choose another directory"),
    ],
)
def test_a_place_that_holds_something_else_is_refused_before_anything_is_encoded(
    place: str, message: str, tmp_path: Path
) -> None:
    """Somebody's 64 GB index above all."""
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    path = tmp_path / "index" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"mine")
    watcher = Listening()
    with pytest.raises(InputError, match=message):
        build_dense(corpus, tmp_path / "index", options(), watcher)
    with pytest.raises(InputError, match=message):
        build_bm25(corpus, tmp_path / "index")
    assert path.read_bytes() == b"mine"
    assert watcher.stages == {"ended": []}


def test_a_dense_index_is_not_replaced_by_another_kind_or_corpus(tmp_path: Path) -> None:
    """It may have taken hours; a flag that was forgotten is no reason to lose it. One that was whole when its build was
    killed is moved into its place."""
    corpus, index, manifest = built(tmp_path)
    index.rename(tmp_path / ".index.encoding")
    message = r"another encoder \(model: 'hashing-64' there, 'hashing' now\); choose"
    refused(message, corpus, index, options(model="hashing"))
    with pytest.raises(InputError, match=r"holds a dense index of .* by hashing-64; delete it, or choose"):
        build_bm25(corpus, index)
    refused("holds a dense index of", write_corpus(tmp_path / "other.jsonl", 50), index)
    assert read_manifest(index) == manifest
    assert found(open_index(index), "north lake")


def test_progress_is_told_in_passages(tmp_path: Path) -> None:
    """Every stage says how much there is and how far it is; the end is said too, whatever happened."""
    watcher = Listening()
    build_dense(write_corpus(tmp_path / "c.jsonl", PIECE + 10), tmp_path / "i", options("flat"), watcher)
    assert watcher.stages["encoding"] == [PIECE + 10, 0, PIECE, PIECE + 10]
    assert watcher.stages["flat index"][-1] == PIECE + 10
    assert "ended" in watcher.stages
    (tmp_path / "bad.jsonl").write_bytes(b"{")
    for build in (partial(build_dense, options=options("flat")), build_bm25):
        failed = Listening()
        with pytest.raises(InputError):
            build(tmp_path / "bad.jsonl", tmp_path / "j", watcher=failed)
        assert "ended" in failed.stages


KILLED = """
import os, signal, sys
from pathlib import Path
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.encoders import EncoderChoice

class Killing(SilentWatcher):
    stages = 0
    def stage(self, name, *, total, done=0):
        self.name = name
    def reached(self, done):
        if (self.name, done) == (sys.argv[3], int(sys.argv[4])):
            os.kill(os.getpid(), signal.SIGKILL)

options = BuildOptions(encoder=EncoderChoice(model="hashing-64"), index_type=sys.argv[5])
build_dense(Path(sys.argv[1]), Path(sys.argv[2]), options, Killing())
"""


@pytest.mark.parametrize(
    ("stage", "at", "index_type", "kept"),
    [
        ("encoding", PIECE, "flat", 0),  # the first piece is encoded, but not written
        ("encoding", 2 * PIECE + 50, "flat", 2 * PIECE),
        ("flat index", 2 * PIECE + 50, "flat", 2 * PIECE + 50),
        ("ivf-sq index", 2 * PIECE + 50, "ivf-sq", 2 * PIECE + 50),
    ],
)
def test_a_build_that_was_killed_goes_on_where_it_was(
    stage: str, at: int, index_type: IndexType, kept: int, tmp_path: Path
) -> None:
    """SIGKILL at any moment costs one piece; the end is the same to the byte as without it."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", 2 * PIECE + 50)
    index = tmp_path / "index"
    command = [sys.executable, "-c", KILLED, corpus, index, stage, str(at), index_type]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not index.exists()
    with pytest.raises(InputError, match="has no manifest"):
        open_index(index)
    watcher = Listening()
    build_dense(corpus, index, options(index_type), watcher)
    going_on = f"{kept:,} of {2 * PIECE + 50:,} passages are encoded; continuing with the rest"
    assert (going_on in watcher.said) == bool(kept)
    assert watcher.stages["encoding"][1] == kept
    build_dense(corpus, tmp_path / "whole", options(index_type))
    for name in ("vectors.npy", "offsets.npy", read_manifest(index).indexes[index_type].file):  # type: ignore[union-attr]
        assert (index / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert open_index(index).identity == open_index(tmp_path / "whole").identity


def test_a_corpus_that_is_changed_while_it_is_encoded_is_an_error(tmp_path: Path) -> None:
    """Not an index of two texts at once."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", PIECE + 10)

    class Changing(Listening):
        def stage(self, name: str, *, total: int, done: int = 0) -> None:
            super().stage(name, total=total, done=done)
            if name == "encoding":
                append_a_passage(corpus)

    with pytest.raises(InputError, match="was changed while it was encoded"):
        build_dense(corpus, tmp_path / "index", options(), Changing())
    assert not (tmp_path / "index").exists()


def test_an_interrupted_build_is_not_thrown_away_for_another_one(tmp_path: Path) -> None:
    """Hours of encoding are deleted by the user, never by a flag that was forgotten. Nor does a build go on with other
    weights: a folder that was trained further keeps its name, and half of the vectors would be of another model."""
    corpus, index = write_corpus(tmp_path / "corpus.jsonl", PIECE + 50), tmp_path / "index"
    command = [sys.executable, "-c", KILLED, corpus, index, "encoding", str(PIECE + 50), "flat"]
    subprocess.run(command, check=False)
    record = tmp_path / ".index.encoding" / "build.json"
    content = orjson.loads(record.read_bytes())
    weights = load_encoder(EncoderChoice(model="hashing-64", query_instruction="king "))
    record.write_bytes(orjson.dumps(content | {"probe": weights.probe()}))
    refused(r"something else \(the encoder's weights have changed\)", corpus, index)
    record.write_bytes(orjson.dumps(content))
    other = r"unfinished build of something else \(model: 'hashing-64' there, 'hashing' now\)"
    refused(other, corpus, index, options(model="hashing"))
    append_a_passage(corpus)
    refused(r"unfinished build of something else \(corpus_sha256: .*delete it, or choose", corpus, index)
    build_bm25(corpus, index)
    assert (tmp_path / ".index.encoding" / "encoded.jsonl").exists()
    record.write_bytes(b"{")
    refused(r"build\.json is damaged: .*delete .*\.index\.encoding", corpus, index)


# -- what does not belong together -----------------------------------------------------------------------------


def test_a_corpus_that_has_changed_is_encoded_again(tmp_path: Path) -> None:
    """Built beside the older one, which is replaced when the new one is whole."""
    corpus, index, before = built(tmp_path)
    append_a_passage(corpus)
    after = build_dense(corpus, index, options())
    assert (before.passages, after.passages) == (40, 41)
    assert found(open_index(index), "a late passage")[0] == "late"


def test_a_query_encoder_that_does_something_else_is_refused(tmp_path: Path) -> None:
    """Names and numbers may agree while the weights are others: the vector of one sentence tells."""
    _, index, manifest = built(tmp_path)
    encoder = load_encoder(HASHING)
    other = Encoder(
        encoder.spec, "fp32", ("cpu",), lambda texts: encoder.embed(texts)[:, ::-1], encoder.lengths, encoder.at_once
    )
    with pytest.raises(InputError, match=r"the same query gets another vector \(cosine -?\d\.\d+\)"):
        DenseIndex(index, manifest, other)


@pytest.mark.parametrize(
    ("line", "model", "message"),
    [
        (b'{"id": "a", "contents": "x"}\n{"contents": "y"}', "hashing-64", r"line 2 is not a passage"),
        (b'{"id": "a", "contents": "x"}', "/nowhere/at/all", "there is no encoder"),
    ],
)
def test_what_cannot_be_encoded_is_refused_and_nothing_written(
    line: bytes, model: str, message: str, tmp_path: Path
) -> None:
    """Before the first passage is encoded."""
    (tmp_path / "corpus.jsonl").write_bytes(line)
    refused(message, tmp_path / "corpus.jsonl", tmp_path / "index", options(model=model))
    assert {each.name for each in tmp_path.iterdir()} == {"corpus.jsonl"}


# -- somebody else's index -------------------------------------------------------------------------------------


def faiss_index_of(path: Path, corpus: Path, model: str = "hashing-64", rows: slice = slice(None)) -> Path:
    """An index as FlashRAG's builder leaves it: rows in corpus order, inner product, nothing said about them."""
    passages = [f"{each.title}\n{each.text}" for each in Corpus(corpus, scan_corpus(corpus).offsets)]
    vectors = load_encoder(EncoderChoice(model=model)).passages(passages[rows])
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(path))
    return path


def test_somebody_elses_index_is_adopted_without_encoding(tmp_path: Path) -> None:
    """The file stays where it is; what is found is what our own build finds; other types are built from it."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", 1200)
    theirs = faiss_index_of(tmp_path / "e5_Flat.index", corpus)
    watcher = Listening()
    manifest = build_dense(corpus, tmp_path / "adopted", options(from_faiss=theirs), watcher)
    assert "encoding" not in watcher.stages
    assert (manifest.vectors, manifest.searched) == (str(theirs), "flat")
    build_dense(corpus, tmp_path / "ours", options("flat"))
    ours, adopted = open_index(tmp_path / "ours"), open_index(tmp_path / "adopted")
    for query in ("north lake", "king of the hill", "film number7"):
        assert found(adopted, query, 3) == found(ours, query, 3)
    added = build_dense(corpus, tmp_path / "adopted", options("sq8"))
    assert set(added.indexes) == {"flat", "sq8"}
    assert found(open_index(tmp_path / "adopted"), "king of the hill", 3) == found(ours, "king of the hill", 3)


def test_an_index_of_something_else_is_not_adopted(tmp_path: Path) -> None:
    """Rows, dimensions, and what the encoder makes of some of the passages must agree."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", 100)
    other = write_corpus(tmp_path / "other.jsonl", 100, seed=1)
    moved = tmp_path / "moved.jsonl"
    lines = corpus.read_bytes().splitlines(keepends=True)
    moved.write_bytes(b"".join([*lines[:66], *lines[67:], b'{"id": "new", "contents": "A new one\\nat the end."}\n']))
    for of, message, theirs in (
        (corpus, "has 99 rows of 64 numbers, and .* 100 passages", (corpus, "hashing-64", slice(0, 99))),
        (corpus, "has 100 rows of 128 numbers, .* makes 64: row i", (corpus, "hashing-128")),
        (corpus, r"the median cosine of 33 is 0\.\d\d, .*--pooling", (other,)),
        (moved, r"[1-9]\d? resemble another passage's more \(row \d+\)", (corpus,)),
    ):
        index = faiss_index_of(tmp_path / "theirs.index", *theirs)
        refused(message, of, tmp_path / "i", options(from_faiss=index))
    assert not (tmp_path / "i").exists()


# -- searching -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 1,500 passages in every type."""
    home = tmp_path_factory.mktemp("dense")
    corpus, index, _ = built(home, 1500)
    for index_type in ("sq8", "hnsw", "ivf-sq", "ivf-pq", "flat"):  # the last one is searched
        build_dense(corpus, index, options(index_type))  # type: ignore[arg-type]
    return index


QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@settings(max_examples=20)
@given(
    queries=st.lists(QUERIES, min_size=1, max_size=40), index_type=st.sampled_from(["flat", "sq8", "hnsw", "ivf-pq"])
)
def test_what_a_query_finds_does_not_depend_on_the_queries_beside_it(
    queries: list[str], index_type: IndexType, world: Path
) -> None:
    """Same rows, same scores to the last digit that is written, alone and in any batch."""
    manifest = read_manifest(world)
    assert isinstance(manifest, DenseManifest)
    index = opened(world, manifest, index_type)
    for query, together in zip(queries, index.rank(queries, 4), strict=True):
        [alone] = index.rank([query], 4)
        assert together.rows.tolist() == alone.rows.tolist()
        assert together.scores.tolist() == alone.scores.tolist()


def test_the_index_finds_what_an_exact_search_over_its_vectors_finds(world: Path) -> None:
    """Best first, equal scores in corpus order."""
    retriever, vectors = open_index(world), np.load(world / "vectors.npy").astype(np.float64)
    query = "north king of a french lake"
    scores = np.round(vectors @ load_encoder(HASHING).queries([query])[0].astype(np.float64), 5)
    best = np.lexsort((np.arange(len(scores)), -scores))[:5]
    passages = retriever.search(query, 5)
    assert [round(each.score, 5) for each in passages] == scores[best].tolist()
    assert sorted(each.score for each in passages) == [each.score for each in passages][::-1]


def test_equal_passages_stand_in_corpus_order_alone_and_in_company(tmp_path: Path) -> None:
    """A hundred copies of one passage: faiss gives other ones to one query than to thirty, we give the first."""
    corpus = tmp_path / "corpus.jsonl"
    copies = {f"c{i}": "King\nof the north lake" for i in range(100)}
    others = {f"o{i}": f"Other\nriver town {i}" for i in range(200)}
    write_rows(corpus, ({"id": name, "contents": text} for name, text in [*others.items(), *copies.items()]))
    for index_type in ("flat", "sq8"):
        manifest = build_dense(corpus, tmp_path / "index", options(index_type))  # type: ignore[arg-type]
        index = DenseIndex(tmp_path / "index", manifest, load_encoder(HASHING))
        for queries in (["king of the north lake"], ["king of the north lake", *WORDS, *WORDS]):
            assert index.rank(queries, 3)[0].rows.tolist() == [200, 201, 202]


def test_the_same_vectors_asked_otherwise_are_another_index(tmp_path: Path) -> None:
    """An instruction before queries changes what is found, and so the identity."""
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    choice = EncoderChoice(model="hashing-64", query_instruction="king: ")
    build_dense(corpus, tmp_path / "plain", options())
    build_dense(corpus, tmp_path / "told", BuildOptions(encoder=choice))
    assert open_index(tmp_path / "plain").identity != open_index(tmp_path / "told").identity


class Slow:
    """A ranking that keeps a count of its batches and works only when it is let."""

    identity, instant = "slow", False

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        self.batches.append(list(queries))
        if "broken" in queries:
            raise RuntimeError("a library's own words")
        return [Ranked(np.arange(min(depth, 3)), np.ones(min(depth, 3))) for _ in queries]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = write_corpus(tmp_path / "corpus.jsonl", 5)
    return Corpus(path, scan_corpus(path).offsets)


async def test_what_waits_shares_the_next_batch_and_is_remembered(corpus: Corpus) -> None:
    """No batch is larger than its limit, no query is searched twice, and results are nobody's to change."""
    slow = Slow()
    retriever = IndexRetriever(corpus, slow)
    queries = [f"query {i % 150}" for i in range(300)]
    results = await asyncio.gather(*(retriever.retrieve(each, 2) for each in queries))
    assert sum(map(len, slow.batches)) <= 300
    assert max(map(len, slow.batches)) <= BATCH
    assert len(slow.batches) < 100
    results[0].clear()
    searched = len(slow.batches)
    assert len(await retriever.retrieve("query 0", 2)) == 2
    assert len(slow.batches) == searched
    await retriever.retrieve("query 0", 1)
    assert len(slow.batches) == searched + 1


async def test_a_failed_batch_fails_everyone_in_it_and_nobody_else(corpus: Corpus) -> None:
    """Nobody waits for ever, and the next search works."""
    retriever = IndexRetriever(corpus, Slow())
    with pytest.raises(RetrievalError, match="the index could not be searched: a library's own words"):
        await retriever.retrieve("broken", 2)
    assert len(await retriever.retrieve("whole", 2)) == 2


def test_a_query_of_any_characters_is_searched(world: Path) -> None:
    """Half characters, controls and other scripts come out of models; none of them ends a run. Without a known word
    nothing is found: a vector of zeros is near everything and nothing."""
    retriever = open_index(world)
    for query in ("north \ud800 lake", "\x00", "\u202e\u0000lake", "٣" * 400):
        assert isinstance(retriever.search(query, 2), list)
    assert retriever.search("the of a", 3) == []


async def test_a_caller_that_gives_up_does_not_disturb_the_others(corpus: Corpus) -> None:
    """Its place in the batch is dropped or its result thrown away."""
    retriever = IndexRetriever(corpus, Slow())
    tasks = [asyncio.ensure_future(retriever.retrieve(f"query {i}", 2)) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, list) and len(each) == 2 for each in done[1::2])
    assert all(isinstance(each, asyncio.CancelledError | list) for each in done[::2])


# -- pieces --------------------------------------------------------------------------------------------------------


ROWS, DIMENSION = 2 * PIECE + 100, 4


def made_up(rows: int = ROWS, dimension: int = DIMENSION) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)


def write(directory: Path, pieces: list[int] | None = None) -> str:
    """Write some of the pieces, all by default; the digest of what is there."""
    vectors = made_up().astype(np.float16)
    with VectorWriter(directory, rows=ROWS, dimension=DIMENSION) as writer:
        for number, start, stop in list(writer.owed()):
            if pieces is None or number in pieces:
                writer.write(number, vectors[start:stop])
        return writer.sha256


def test_what_is_read_is_what_was_written_in_fp16(tmp_path: Path) -> None:
    """By stretch and by row, and by NumPy itself: the file is a plain one."""
    write(tmp_path)
    stored = StoredVectors(tmp_path / VECTORS)
    expected = made_up().astype(np.float16)
    assert (stored.rows, stored.dimension) == (ROWS, DIMENSION)
    assert np.array_equal(stored.read(0, ROWS), expected.astype(np.float32))
    assert np.array_equal(stored.read(PIECE - 3, PIECE + 3), expected[PIECE - 3 : PIECE + 3].astype(np.float32))
    rows = np.array([ROWS - 1, 0, PIECE])
    assert np.array_equal(stored.take(rows), expected[rows].astype(np.float32))
    assert np.array_equal(np.load(tmp_path / VECTORS), expected)


@pytest.mark.parametrize("first", [[], [0], [1], [0, 1], [2], [0, 1, 2]])
def test_pieces_that_are_on_disk_are_not_owed_again(first: list[int], tmp_path: Path) -> None:
    """Whatever was written before, going on ends with the same bytes and the same digest."""
    whole, again = tmp_path / "whole", tmp_path / "again"
    whole.mkdir()
    again.mkdir()
    write(again, first)
    with VectorWriter(again, rows=ROWS, dimension=DIMENSION) as writer:
        assert [number for number, _, _ in writer.owed()] == [number for number in range(3) if number not in first]
        assert writer.encoded == sum(
            stop - start for n, (start, stop) in enumerate(row_ranges(ROWS, PIECE)) if n in first
        )
    assert write(again) == write(whole)
    assert (again / VECTORS).read_bytes() == (whole / VECTORS).read_bytes()


def test_a_line_that_was_torn_by_a_kill_makes_its_piece_owed(tmp_path: Path) -> None:
    """The line is written after the piece is synced; half a line is no line."""
    digest = write(tmp_path)
    log = (tmp_path / ENCODED).read_bytes()
    (tmp_path / ENCODED).write_bytes(log[:-10])
    with VectorWriter(tmp_path, rows=ROWS, dimension=DIMENSION) as writer:
        assert [number for number, _, _ in writer.owed()] == [2]
    assert write(tmp_path) == digest


def test_vectors_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    """Not read as fewer vectors."""
    write(tmp_path)
    whole = (tmp_path / VECTORS).read_bytes()
    for left in (0, 50, 1000):
        (tmp_path / VECTORS).write_bytes(whole[:left])
        with pytest.raises(InputError, match=r"vectors\.npy cannot be read .*delete the index and build it again"):
            StoredVectors(tmp_path / VECTORS)
