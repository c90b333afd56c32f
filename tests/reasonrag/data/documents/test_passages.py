"""Documents become passages: sizes, titles, and that nothing is lost."""

from __future__ import annotations

from reasonrag.data.documents.document import Document, Section, passages_of


def test_passages_are_even_end_with_sentences_and_bear_their_headings() -> None:
    """A long title keeps its two ends; languages without spaces are cut too."""
    sections = [Section(("A", "B"), "A sentence of words. " * 30), Section(("long " * 50, "end " * 50), "漢字。" * 200)]
    passages = list(passages_of(Document("T", sections), max_chars=250))
    assert {len(text) for title, text in passages if title == "T > A > B"} <= set(range(150, 251))
    assert all(text.endswith((".", "。")) and len(text) <= 250 for _, text in passages)
    assert "".join(text for title, text in passages if title.startswith("T > end")) == "漢字。" * 200
    assert max(len(title) for title, _ in passages) <= 200


def test_a_long_text_loses_nothing_where_it_is_taken_apart() -> None:
    """The splitter's time grows with the square of a text's length: it gets a part at a time."""
    words = [f"word{number}" for number in range(30_000)]
    found = [text for _, text in passages_of(Document("t", [Section((), " ".join(words))]), max_chars=1000)]
    assert " ".join(found).split() == words
    assert max(map(len, found)) <= 1000
    unbroken = passages_of(Document("t", [Section((), "x" * 250_000)]), max_chars=1000)
    assert [len(text) for _, text in unbroken] == [1000] * 250
