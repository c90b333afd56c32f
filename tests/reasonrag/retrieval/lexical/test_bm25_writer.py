"""BM25's files written in pieces: the scores are those of bm25s, whatever the pieces."""

from __future__ import annotations

from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.retrieval.lexical.bm25_writer import Postings

Matrix = dict[str, dict[int, np.float32]]


def matrix(index: bm25s.BM25) -> Matrix:
    """The score of every token in every document, whatever numbers the tokens have."""
    data, indices, indptr = (np.asarray(index.scores[name]) for name in ("data", "indices", "indptr"))
    return {
        token: dict(zip(indices[indptr[i] : indptr[i + 1]].tolist(), data[indptr[i] : indptr[i + 1]], strict=True))
        for token, i in index.vocab_dict.items()
        if token
    }


def of_bm25s(documents: list[list[str]]) -> Matrix:
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(documents, show_progress=False)
    return matrix(index)


def in_pieces(documents: list[list[str]], size: int, home: Path, at_once: int = 1000) -> bm25s.BM25:
    """The same, some documents at a time, and read back."""
    with Postings(home) as written:
        for start in range(0, len(documents), size):
            words: dict[str, int] = {}
            piece = documents[start : start + size]
            written.add([[words.setdefault(each, len(words)) for each in document] for document in piece], words)
        written.save(home, k1=1.2, b=0.75, at_once=at_once)
    return bm25s.BM25.load(home, mmap=True, load_corpus=False)


DOCUMENTS = st.lists(
    st.lists(st.sampled_from("river town film king of the hill lake".split()), max_size=9), min_size=1, max_size=12
).filter(any)


@given(documents=DOCUMENTS, size=st.integers(1, 12), at_once=st.sampled_from([1, 3, 1000]))
def test_scores_are_those_of_bm25s_to_the_bit(
    documents: list[list[str]], size: int, at_once: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In pieces of any size, merged in ranges of any size; documents without a word keep their row."""
    index = in_pieces(documents, size, tmp_path_factory.mktemp("postings"), at_once)
    assert matrix(index) == of_bm25s(documents)
    assert index.scores["num_docs"] == len(documents)


def test_documents_stand_in_order_within_a_token(tmp_path: Path) -> None:
    """As bm25s has them: it adds up scores document by document."""
    index = in_pieces([["a"], ["b", "a"], ["a", "b"], ["a"]], 1, tmp_path)
    token, indptr = index.vocab_dict["a"], index.scores["indptr"]
    assert index.scores["indices"][indptr[token] : indptr[token + 1]].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_bytes_do_not_depend_on_the_pieces(size: int, tmp_path: Path) -> None:
    """Nor on PYTHONHASHSEED: words are numbered in order of appearance."""
    documents = [["king", "town"], ["river"], ["hill", "town", "lake"], [], ["king", "film"]]
    contents = []
    for pieces, home in ((size, tmp_path / "pieces"), (5, tmp_path / "whole")):
        home.mkdir()
        in_pieces(documents, pieces, home, at_once=size)
        contents.append({path.name: path.read_bytes() for path in home.iterdir()})
    assert contents[0] == contents[1]
    assert all(".index." in name for name in contents[0]), "nothing is left of the pieces"


def test_quiet_words_change_no_score_of_others(tmp_path: Path) -> None:
    """They count for no length; a document of nothing else keeps its row."""
    loud = [["king", "town"], ["river"], [], ["king", "film"]]
    (tmp_path / "a").mkdir()
    index = in_pieces([[*each, " the", " a"] for each in loud], 2, tmp_path / "a")
    assert {word: scores for word, scores in matrix(index).items() if word[0] != " "} == of_bm25s(loud)
    assert len(matrix(index)[" the"]) == 4
