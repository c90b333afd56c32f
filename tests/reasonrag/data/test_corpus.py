"""Corpora: which lines are passages, and that a row read by offset is the line that was scanned."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Corpus, Passage, parse_passage, scan_corpus
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_lines


def row(passage_id: object, contents: str = "Paris\nA city.") -> bytes:
    return orjson.dumps({"id": passage_id, "contents": contents})


@pytest.mark.parametrize(
    ("record", "passage"),
    [
        ({"id": "a", "contents": "Paris\nA city."}, Passage("a", "Paris", "A city.")),
        ({"id": 7, "contents": "Paris\nA city."}, Passage("7", "Paris", "A city.")),
        ({"id": "a", "contents": "\nA city."}, Passage("a", "", "A city.")),
        ({"id": "a", "contents": " Paris \n A city. "}, Passage("a", "Paris", "A city.")),
        ({"id": "a", "text": "A city."}, Passage("a", "", "A city.")),
        ({"id": "å", "contents": "東京\nİstanbul ≠ ﬁ"}, Passage("å", "東京", "İstanbul ≠ ﬁ")),
        ({"id": "a", "contents": "Paris\nA city.", "wikidata": {"q": 90}}, Passage("a", "Paris", "A city.")),
    ],
)
def test_every_variant_of_the_format_is_read(record: dict[str, Any], passage: Passage) -> None:
    """FlashRAG's contents, or title and text; further fields are left alone."""
    assert parse_passage(orjson.dumps(record), where="here") == passage


NO_PASSAGES: list[tuple[bytes, str]] = [
    (b"", "is not JSON"),
    (b'{"id": "a", "contents": "Par\xff"}', "is not JSON"),
    (b'["a", "Paris"]', r'is not a passage: it needs "id" and "contents" \("title\\ntext"\)'),
    (b'{"id": 1.5, "contents": "Paris"}', "is not a passage"),
    (b'{"id": true, "contents": "Paris"}', "is not a passage"),
    (b'{"id": "a", "contents": ["Paris"]}', "is not a passage"),
    (b'{"id": "a", "contents": " \\n "}', "is not a passage"),
    (b'{"id": "a", "title": "Paris"}', "is not a passage"),
]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        *(("c.jsonl", [row(1), row(2), line, row(4)], rf"c\.jsonl, line 3 {says}") for line, says in NO_PASSAGES),
        ("c.jsonl", [row("a"), row("b"), row("c"), row("b")], "line 4: passage id 'b' was already used in line 2"),
        ("c.jsonl", [row("2"), row(2)], "line 2: passage id '2' was already used in line 1"),
        ("c.jsonl", [], r"c\.jsonl is empty; it needs one passage per line"),
        ("nowhere", [row("a")], "cannot read the corpus .*nowhere: No such file"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(name: str, lines: list[bytes], message: str, tmp_path: Path) -> None:
    """Every bad line is found by the scan, wherever it stands, before anything is built. A number and its spelling are
    the same id, because records hold spellings."""
    write_lines(tmp_path / "c.jsonl", *lines)
    with pytest.raises(InputError, match=message):
        scan_corpus(tmp_path / name)


TEXTS = st.text(min_size=1, max_size=20).filter(str.strip)


@given(contents=st.lists(TEXTS, min_size=1, max_size=8), end=st.sampled_from([b"\n", b""]), own_lines=st.booleans())
def test_random_access_equals_reading_line_by_line(contents: list[str], end: bytes, *, own_lines: bool) -> None:
    """Rows read by offset, in any order, are the passages in file order; the hash is the file's."""
    dumped = [orjson.dumps({"id": i, "contents": text}) for i, text in enumerate(contents)]
    separator = b"\r\n" if own_lines else b"\n"
    corpus = Path("corpus.jsonl")  # the working directory is the test's own
    corpus.write_bytes(separator.join(dumped) + end)
    scan = scan_corpus(corpus)
    passages = Corpus(corpus, scan.offsets)
    expected = [parse_passage(line, where="here") for line in dumped]
    assert len(passages) == len(contents)
    assert list(passages) == expected
    assert [passages[i] for i in reversed(range(len(passages)))] == expected[::-1]
    assert scan.sha256 == hashlib.sha256(corpus.read_bytes()).hexdigest()


def test_a_corpus_is_read_on_although_its_file_is_replaced(tmp_path: Path) -> None:
    """An open corpus holds on to the bytes it was opened with: a run never mixes two files."""
    path = write_lines(tmp_path / "corpus.jsonl", row(1, "Paris\nA city."), row(2, "Rome\nA town."))
    corpus = Corpus(path, scan_corpus(path).offsets)
    newer = write_lines(tmp_path / "newer.jsonl", row(9, "A much longer title\nand other text"))
    os.replace(newer, path)  # noqa: PTH105 - the system call is the point
    assert [passage.title for passage in corpus] == ["Paris", "Rome"]
