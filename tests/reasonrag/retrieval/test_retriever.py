"""BM25 on disk: what is found, in which order, when an index is used, refused or built again, and
how rankings are fused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError, RetrievalError
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.opening import open_index
from reasonrag.retrieval.ranking import FUSED_DEPTH, HybridIndex, Ranked, best
from reasonrag.retrieval.retriever import BESIDE, IndexRetriever, ResultCache
from tests.helpers.indexes import open_or_build
from tests.helpers.jsonl import append_a_passage, write_passages

ANIMALS = (
    ("cats", "Cats", "Cats are small animals. Cats sleep."),
    ("dogs", "Dogs", "Dogs are animals that bark."),
    ("cats_and_dogs", "Cats and dogs", "An idiom about rain."),
    ("rivers", "Rivers", "The running of water to the sea."),
    ("empty_text", "Fish", ""),
)


def found(retriever: IndexRetriever, query: str, top_k: int = 10) -> list[str]:
    return [passage.id for passage in retriever.search(query, top_k)]


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> IndexRetriever:
    """An index of five passages."""
    home = tmp_path_factory.mktemp("animals")
    build_bm25(write_passages(home / "corpus.jsonl", ANIMALS), home / "index")
    return open_index(home / "index")


# -- searching -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("CAT", ["cats", "cats_and_dogs"]),
        ("fish", ["empty_text"]),
        ("run", ["rivers"]),
        ("sleeping animals", ["cats", "dogs"]),
        ("zebra fish", ["empty_text"]),
        ("of the and", ["cats_and_dogs", "rivers"]),
    ],
)
def test_a_query_finds_the_passages_that_share_a_word_with_it(
    query: str, ids: list[str], animals: IndexRetriever
) -> None:
    """Words are compared by their stem, in titles and texts; stop words count only where a query has nothing else."""
    assert set(found(animals, query)) == set(ids)


@pytest.mark.parametrize(
    ("query", "top_k", "message"),
    [
        ("", 3, "the query is empty"),
        ("x" * 100_000, 3, "the query has 100,000 bytes; the limit is 32,768"),
        ("fish", 0, "0 passages were asked for; a search gives 1 to 1,000"),
    ],
)
async def test_what_is_no_query_is_an_error_of_that_search(
    query: str, top_k: int, message: str, animals: IndexRetriever
) -> None:
    """With and without an event loop; nothing is searched and nothing cut to fit."""
    with pytest.raises(RetrievalError, match=message):
        animals.search(query, top_k)
    with pytest.raises(RetrievalError, match=message):
        await animals.retrieve(query, top_k)


@pytest.mark.parametrize(("top_k", "ids"), [(1, ["best"]), (2, ["best", "p0"]), (4, ["best", "p0", "p1", "p2"])])
def test_equal_scores_stand_in_corpus_order(top_k: int, ids: list[str], tmp_path: Path) -> None:
    """Where BM25 cannot tell, the file's order decides, also at the cut; a better one behind them comes first."""
    rows = (*((f"p{i}", "Same", "the same words") for i in range(9)), ("best", "Same words", "same words"))
    retriever = open_or_build(tmp_path / "i", write_passages(tmp_path / "c.jsonl", rows))
    assert found(retriever, "same words", top_k) == ids


def test_only_the_latest_results_are_kept() -> None:
    """As many as there is room for; the one that was used longest ago goes first."""
    cache, fish = ResultCache(4 * BESIDE + 31), [Passage("f", "Fish", "A fish")]
    for query in ("first", "second", "first", "third"):
        if cache.get(query, 1) is None:
            cache.keep(query, 1, fish)
    assert [cache.get(query, 1) for query in ("first", "second", "third")] == [fish, None, fish]
    for number in range(9):  # what finds nothing takes room, too
        cache.keep(str(number), 1, [])
    assert [cache.get(str(number), 1) for number in range(9)] == [None] * 5 + [[]] * 4


# -- index directories -----------------------------------------------------------------------------------------


def change_a_letter(corpus: Path) -> None:
    modified = corpus.stat().st_mtime_ns
    corpus.write_bytes(corpus.read_bytes().replace(b"Rivers", b"Lately"))
    os.utime(corpus, ns=(modified + 1, modified + 1))  # the same size, a little later


@pytest.mark.parametrize("change", [append_a_passage, change_a_letter])
def test_an_index_is_built_again_when_its_corpus_has_changed(change: Callable[[Path], None], tmp_path: Path) -> None:
    """The user is told, and searches see the new text; the run's configuration shows another corpus."""
    corpus, index = write_passages(tmp_path / "corpus.jsonl", ANIMALS), tmp_path / "index"
    before = open_or_build(index, corpus)
    assert found(before, "late") == []
    change(corpus)
    messages: list[str] = []
    after = open_or_build(index, corpus, say=messages.append)
    assert messages == [f"{corpus} has changed since {index} was built; building the index again"]
    assert len(found(after, "late")) == 1
    assert after.identity != before.identity


def test_an_index_that_is_open_survives_being_built_again(tmp_path: Path) -> None:
    """Its files are mapped into memory; a build must never write to them."""
    corpus, index = write_passages(tmp_path / "corpus.jsonl", ANIMALS), tmp_path / "index"
    retriever = open_or_build(index, corpus)
    before = found(retriever, "fish")
    build_bm25(write_passages(tmp_path / "other.jsonl", (("q", "Fish", "A fish."),)), index)
    assert found(retriever, "fish") == before
    assert found(open_index(index), "fish") == ["q"]


def test_two_runs_that_need_the_same_index_build_it_once(tmp_path: Path) -> None:
    """The second waits for the first, then finds it built."""
    corpus, index = write_passages(tmp_path / "corpus.jsonl", ANIMALS), tmp_path / "index"
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        retrievers = list(pool.map(lambda _: open_or_build(index, corpus, say=said.append), range(4)))
    building = f"no index of {corpus} yet; building {index}"
    assert said.count(building) == 1
    assert set(said) <= {building, f"waiting for another process that builds {index}"}
    assert {tuple(found(each, "fish")) for each in retrievers} == {("empty_text",)}


def test_a_corpus_that_was_changed_during_a_search_is_an_error_of_that_search(tmp_path: Path) -> None:
    """What is read by offset is no longer a passage: a RetrievalError, the question's, not the run's."""
    corpus = write_passages(tmp_path / "corpus.jsonl", ANIMALS)
    retriever = open_or_build(tmp_path / "index", corpus)
    size = corpus.stat().st_size
    with corpus.open("r+b") as file:
        file.write(b"x" * size)
    with pytest.raises(RetrievalError, match="The corpus was changed while it was searched"):
        retriever.search("fish", 3)


@pytest.mark.parametrize("change", [Path.unlink, append_a_passage, change_a_letter])
def test_an_index_whose_corpus_is_gone_or_changed_is_not_opened(change: Callable[[Path], None], tmp_path: Path) -> None:
    """Passages are read from the corpus by offset, so a changed one would give other text."""
    corpus, index = write_passages(tmp_path / "corpus.jsonl", ANIMALS), tmp_path / "index"
    build_bm25(corpus, index)
    change(corpus)
    with pytest.raises(
        InputError,
        match=r"is missing or has changed\. Restore it, .* build the index again: reasonrag index build --corpus",
    ):
        open_index(index)


@pytest.mark.parametrize(
    ("corpus", "index", "message"),
    [
        (b'{"id": "p0", "contents": "?\\n!! ..."}', "index", r"corpus\.jsonl has no searchable words"),
        (b'{"id": "p0", "contents": "a fish"}', "corpus.jsonl/index", "cannot write .*Choose another place for it"),
    ],
)
def test_what_makes_no_index_is_refused(corpus: bytes, index: str, message: str, tmp_path: Path) -> None:
    """Signs alone, and a path below a regular file; nothing is created."""
    (tmp_path / "corpus.jsonl").write_bytes(corpus)
    with pytest.raises(InputError, match=message):
        build_bm25(tmp_path / "corpus.jsonl", tmp_path / index)
    assert not (tmp_path / "index").exists()


# -- ranking -------------------------------------------------------------------------------------------------------


class Scripted:
    """A ranking that gives the same rows to every query, however deep it is asked."""

    def __init__(self, *rows: int, fallback: bool = False) -> None:
        self.fallback = fallback
        self.identity, self.instant = f"rows {rows}", True
        self.rows = np.array(rows, dtype=np.int64)
        self.depths: list[int] = []

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        self.depths.append(depth)
        rows = self.rows[:depth]
        return [Ranked(rows, -np.arange(len(rows), dtype=np.float64), self.fallback) for _ in queries]


def fused(*rankings: Scripted, depth: int = 10) -> list[tuple[int, float]]:
    [found] = HybridIndex(rankings).rank(["anything"], depth)
    return list(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


def test_a_row_gets_the_sum_of_its_reciprocal_ranks() -> None:
    """1 / (60 + rank), ranks from 1, as in the paper; a row that one ranking lacks gets nothing from it."""
    found = dict(fused(Scripted(5, 7), Scripted(7, 9)))
    assert found == pytest.approx({7: 1 / 62 + 1 / 61, 5: 1 / 61, 9: 1 / 62}, abs=1e-6)


@pytest.mark.parametrize(("other", "rows", "fallback"), [((5, 7), [5, 7], False), ((), [9], True)])
def test_similar_words_count_only_where_nothing_else_is_found(
    other: tuple[int, ...], rows: list[int], fallback: bool
) -> None:
    [found] = HybridIndex([Scripted(*other), Scripted(9, fallback=True)]).rank(["anything"], 5)
    assert (found.rows.tolist(), found.fallback) == (rows, fallback)


def test_deep_rows_can_rise() -> None:
    """Both rankings are asked for a hundred rows, however few are wanted."""
    first, second = Scripted(*range(100)), Scripted(*reversed(range(100)))
    assert len(fused(first, second, depth=3)) == 3
    assert first.depths == [FUSED_DEPTH]


ROWS = st.lists(st.integers(0, 50), unique=True, max_size=20)


@given(first=ROWS, second=ROWS, depth=st.integers(1, 30))
def test_fusing_does_not_depend_on_which_ranking_is_named_first(
    first: list[int], second: list[int], depth: int
) -> None:
    """The sum is the same either way, and so is the order between equal ones."""
    assert fused(Scripted(*first), Scripted(*second), depth=depth) == fused(
        Scripted(*second), Scripted(*first), depth=depth
    )


@given(
    scores=st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=20),
    noise=st.integers(-4, 4),
    depth=st.integers(1, 20),
)
def test_the_last_digits_of_a_score_never_decide(scores: list[float], noise: int, depth: int) -> None:
    """Scores on a grid of a millionth give the same rows in the same order whatever stands a digit behind."""
    rows = np.arange(len(scores), dtype=np.int64)
    grid = np.round(np.array(scores), 6)
    plain, disturbed = best(rows, grid, depth), best(rows, grid + noise * 1e-8, depth)
    assert plain.rows.tolist() == disturbed.rows.tolist()
    assert plain.scores.tolist() == disturbed.scores.tolist()
