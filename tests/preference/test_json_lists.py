"""Reading a list without holding it: whatever stands where, and where it stops being a list."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference import json_lists
from preference.json_lists import MalformedListError, read_list

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists") / "list.json"


@given(entries=st.lists(JSON, max_size=8), indent=st.sampled_from([None, 0, 2]), chunk=st.integers(1, 40))
@settings(deadline=None)
def test_a_list_is_read_as_it_was_written(file: Path, entries: list[Any], indent: int | None, chunk: int) -> None:
    """However it is laid out and wherever the pieces end that are read: in a number, a name, an escape."""
    file.write_text(json.dumps(entries, indent=indent), "utf-8")
    before, json_lists.CHUNK = json_lists.CHUNK, chunk
    try:
        assert list(read_list(file)) == entries
    finally:
        json_lists.CHUNK = before


@pytest.mark.parametrize("content", ["[1, 2]", "\ufeff[1, 2]", " \n[1\n,\n2]\n\n", "[\n1,\n2\n]\n"])
def test_marks_and_spaces_around_a_list_are_no_matter(file: Path, content: str) -> None:
    """Editors leave both."""
    file.write_text(content, "utf-8")
    assert list(read_list(file)) == [1, 2]


def test_what_stricter_readers_refuse_is_read(file: Path) -> None:
    """Published files hold halves of surrogate pairs and NaN."""
    file.write_text(r'[{"text": "\ud800", "margin": NaN}]', "utf-8")
    [row] = read_list(file)
    assert row["text"] == "\ud800"
    assert row["margin"] != row["margin"]


@pytest.mark.parametrize(
    ("content", "before", "says"),
    [
        ("", [], "it ends before '['"),
        ('{"a": 1}', [], "expected '[', found '{'"),
        ("[1, 2", [1, 2], "it ends before ']'"),
        ("[1 2]", [1], "row 1: not a JSON list: expected ']', found '2'"),
        ('[{"a": 1}, {"a', [{"a": 1}], "row 2"),
        ("[1,]", [1], "row 2"),
        ("[1] x", [1], "something follows the list"),
        ("[" * 100_000, [], "nested too deeply"),
    ],
)
def test_a_broken_list_says_where_it_breaks(file: Path, content: str, before: list[Any], says: str) -> None:
    """What stands before is given all the same; the file and the row are named."""
    file.write_text(content, "utf-8")
    found: list[Any] = []
    with pytest.raises(MalformedListError, match=r"list\.json") as error:
        found.extend(read_list(file))
    assert found == before
    assert says in str(error.value)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    """By name, not with a traceback."""
    file.write_bytes(b'["\xff"]')
    with pytest.raises(MalformedListError, match="UTF-8"):
        list(read_list(file))


def test_memory_is_that_of_a_row(file: Path) -> None:
    """Thirty megabytes of rows pass through a few."""
    with file.open("w") as out:
        out.write("[" + ",".join(json.dumps({"text": "x" * 10_000}) for _ in range(3000)) + "]")
    tracemalloc.start()
    assert sum(1 for _ in read_list(file)) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
