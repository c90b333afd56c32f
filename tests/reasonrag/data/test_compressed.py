"""Packed corpora: unpacked once, noticed when they change, refused when they are damaged."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from reasonrag.data.compressed import _SMALL, on_the_hub, plain_corpus
from reasonrag.errors import InputError

LINES = b'{"id": "a", "contents": "Paris\\nA city."}\n{"id": "b", "contents": "Rome\\nAnother."}\n'


def silent(message: str) -> None:
    raise AssertionError(f"nothing should have been said, but was: {message}")


def test_a_plain_corpus_is_used_where_it_lies(tmp_path: Path) -> None:
    """Nothing is copied."""
    (tmp_path / "corpus.jsonl").write_bytes(LINES)
    assert plain_corpus(tmp_path / "corpus.jsonl", tmp_path / "home", say=silent) == tmp_path / "corpus.jsonl"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("name", ["wiki.jsonl.gz", "wiki.jsonl"])
def test_a_packed_corpus_is_unpacked_once(name: str, tmp_path: Path) -> None:
    """Known by how it begins, whatever it is called; the second time nothing is said and nothing written."""
    packed = tmp_path / name
    packed.write_bytes(gzip.compress(LINES))
    said: list[str] = []
    plain = plain_corpus(packed, tmp_path / "home", say=said.append)
    assert plain.read_bytes() == LINES
    assert plain.parent.name.startswith("wiki-")
    assert said == [f"unpacking {packed} into {plain}"]
    before = plain.stat().st_mtime_ns
    assert plain_corpus(packed, tmp_path / "home", say=silent) == plain
    assert plain.stat().st_mtime_ns == before


def test_a_file_that_unpacks_to_far_more_than_a_corpus_would_is_refused(tmp_path: Path) -> None:
    """A bomb fills no disk; what is small in any case is unpacked however well it packs."""
    packed = tmp_path / "bomb.jsonl.gz"
    packed.write_bytes(gzip.compress(b"x" * (_SMALL + (1 << 21)), 9))
    with pytest.raises(InputError, match=r"bomb\.jsonl\.gz unpacks to more than 200 times its size"):
        plain_corpus(packed, tmp_path / "home")
    assert not list((tmp_path / "home").rglob("*.jsonl"))
    packed.write_bytes(gzip.compress(b"x" * (1 << 22), 9))
    assert plain_corpus(packed, tmp_path / "home").stat().st_size == 1 << 22


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.jsonl.gz", r"there is no corpus .*nowhere\.jsonl\.gz"),
        (".", r"is a folder, and a corpus is a file; make one: reasonrag corpus build"),
        ("hf://datasets/someone/wiki@main", "names no file; give hf://datasets/someone/wiki/FILE"),
    ],
)
def test_what_is_no_corpus_is_refused_with_what_to_give(name: str, message: str, tmp_path: Path) -> None:
    """Nothing is created for it."""
    with pytest.raises(InputError, match=message):
        plain_corpus(Path(name) if ":" in name else tmp_path / name, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_packed_corpus_that_has_changed_is_unpacked_again(tmp_path: Path) -> None:
    """In the same place, so that its indexes notice too."""
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(LINES))
    first = plain_corpus(packed, tmp_path / "home")
    packed.write_bytes(gzip.compress(LINES + LINES.replace(b'"a"', b'"c"').replace(b'"b"', b'"d"')))
    assert plain_corpus(packed, tmp_path / "home") == first
    assert len(first.read_bytes().splitlines()) == 4


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: packed[:25] + b"\0\0\0\0" + packed[29:]])
def test_a_damaged_file_is_refused_and_leaves_no_content(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A download that was cut off is not a small corpus."""
    packed = tmp_path / "c"
    packed.write_bytes(damage(gzip.compress(LINES * 50)))
    with pytest.raises(InputError, match=r"is damaged or truncated \(.*\); download it again"):
        plain_corpus(packed, tmp_path / "home")
    assert [each for each in tmp_path.rglob("*") if each.is_file() and each.stat().st_size] == [packed]


def test_wikipedia_of_2018_is_known_by_its_name() -> None:
    """Unless a file of that name is there."""
    assert [bool(on_the_hub(Path(each))) for each in ("wiki-18", "wiki-19")] == [True, False]
    Path("wiki-18").write_bytes(LINES)
    assert not on_the_hub(Path("wiki-18"))
