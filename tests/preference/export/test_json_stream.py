"""Files of many values, one at a time: whatever layout, whatever stands in them, and where they stop being one."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.export.json_stream import LONGEST_ITEM, MalformedFileError, read_items

TEXTS = st.text(st.sampled_from('"\\{}[],: \n\u20acab') | st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=4)
LAYOUTS: dict[str, Callable[[list[Any]], str]] = {
    "one line": json.dumps,
    "indented": lambda values: json.dumps(values, indent=2, ensure_ascii=False),
    "a value a line": lambda values: "[\n" + ",\n".join(map(json.dumps, values)) + "\n]\n",
    "several a line": lambda values: "[" + ",\n".join(map(json.dumps, values)).replace("\n", "", 1) + "]",
    "commas in front": lambda values: "[" + "\n,".join(map(json.dumps, values)) + "\n]",
}
WITHOUT_A_LIST: dict[str, Callable[[list[Any]], str]] = {
    "lines": lambda values: "\n".join(map(json.dumps, values)),
    "glued": lambda values: "".join(map(json.dumps, values)),
    "indented": lambda values: "\n".join(json.dumps(each, indent=1) for each in values),
    "lists": lambda values: "".join(json.dumps([each]) for each in values),
}


def values(path: Path, longest: int = LONGEST_ITEM) -> list[Any]:
    return [item.value for item in read_items(path, longest=longest)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("items") / "items.json"


@given(
    written=st.lists(JSON, max_size=8).map(lambda several: (several, LAYOUTS))
    | st.lists(OBJECTS, max_size=5).map(lambda several: (several, WITHOUT_A_LIST)),
    data=st.data(),
)
def test_values_are_read_as_they_were_written(
    file: Path, written: tuple[list[Any], dict[str, Callable[[list[Any]], str]]], data: st.DataObject
) -> None:
    """A list however it is laid out, and JSON lines; wherever the window ends: in a number, a name, an escape."""
    several, layouts = written
    layout = data.draw(st.sampled_from(list(layouts.values())))
    file.write_text(layout(several), "utf-8")
    longest = max((len(json.dumps(each, indent=2)) for each in several), default=0) + 20
    assert values(file, longest=longest) == several


@given(written=st.lists(OBJECTS, min_size=1, max_size=3), layout=st.sampled_from(list(LAYOUTS)), data=st.data())
def test_a_list_that_is_cut_off_is_an_error_wherever_it_is_cut(
    file: Path, written: list[Any], layout: str, data: st.DataObject
) -> None:
    """Never fewer values in silence, also where the cut is at the end of a line."""
    content = LAYOUTS[layout](written).rstrip().encode()
    file.write_bytes(content[: data.draw(st.integers(1, len(content) - 1))])
    with pytest.raises(MalformedFileError, match="cut off"):
        values(file)


@pytest.mark.parametrize("content", ["[1, 2]", "\ufeff[1, 2]", " \n[1\n,\n2]\n\n", "[\n1,\n2\n]\n"])
def test_marks_and_spaces_around_a_list_are_no_matter(file: Path, content: str) -> None:
    """Editors leave both."""
    file.write_text(content, "utf-8")
    assert values(file) == [1, 2]


def test_what_stricter_readers_refuse_is_mended(file: Path) -> None:
    """Files of others hold NaN, halves of characters, bytes that are no text and numbers without bound; each item says
    whether it was."""
    odd = b'{"a": NaN, "b": "\\ud83d", "c": "\\ud83d\\ude00", "d": 1' + b"0" * 30 + b', "e": "\xff"}'
    repaired = {"a": None, "b": "\ufffd", "c": "\U0001f600", "d": 1e30, "e": "\ufffd"}
    for between in (b", ", b",\n"):
        file.write_bytes(b"[" + odd + between + b'{"a": 1}' + between + odd + b"]")
        found = [(item.number, item.value, item.repaired) for item in read_items(file)]
        assert found == [(1, repaired, True), (2, {"a": 1}, False), (3, repaired, True)]


@pytest.mark.parametrize(
    ("content", "before", "says"),
    [
        ("hello", [], "line 1: neither a list of JSON objects nor JSON lines: after 0 items comes 'hello'"),
        ("[1, 2", [1], "cut off: it ends after 1 whole items"),
        ("[1 2]", [1], "line 1: neither"),
        ('[{"a": 1},\n {"a', [{"a": 1}], "cut off"),
        ('[\n{"a": 1},\n{"a" 1}\n]', [{"a": 1}], "line 3: item 2 is not JSON"),
        ("[1,]", [1], "comes ']'"),
        ("[1] x", [1], "comes 'x'"),
        ('{"a": 1},\n{"a": 2}', [{"a": 1}], "comes ',"),
        (f"[1, {'9' * 5000}]", [1], "item 2 is not JSON: Exceeds the limit"),
        ("[[" + "[" * 100_000 + "]" * 100_000 + "]]", [], "nested too deeply"),
    ],
)
def test_a_broken_file_says_where_it_breaks(file: Path, content: str, before: list[Any], says: str) -> None:
    """What stands before is given all the same; the file and the place are named."""
    file.write_text(content, "utf-8")
    found: list[Any] = []
    with pytest.raises(MalformedFileError, match=r"items\.json") as error:
        found.extend(item.value for item in read_items(file))
    assert found == before
    assert says in str(error.value)


LONG = "x" * 900


@pytest.mark.parametrize("layout", ["[{0},{1},{2}]", "{0}\n{1}\n{2}\n"], ids=["a list", "JSON lines"])
@pytest.mark.parametrize("long", [{"a": LONG}, {"a": {"b": [LONG, '}]{["\\']}, "d": LONG}], ids=["flat", "deep"])
def test_an_item_that_is_too_long_is_skipped(long: object, layout: str, file: Path) -> None:
    """What comes before and after is read."""
    written = json.dumps(long)
    file.write_text(layout.replace("{0}", '{"n": 1}').replace("{1}", written).replace("{2}", '{"n": {"m": "]"}}'))
    found = list(read_items(file, longest=len(written) - 1))
    assert [(each.value, each.too_long) for each in found] == [
        ({"n": 1}, False),
        (None, True),
        ({"n": {"m": "]"}}, False),
    ]
    assert values(file, longest=len(written))[1] == long


@pytest.mark.parametrize("before", range(0, 400, 23))
def test_an_item_of_less_than_twice_that_is_skipped_wherever_it_stands(before: int, file: Path) -> None:
    """Also where a part of it stands at the end of what was read before."""
    file.write_text(json.dumps([*([{}] * before), {"a": "x" * 180}, {"n": 1}]))
    assert [each.number for each in read_items(file, longest=100) if each.too_long] == [before + 1]


def test_an_item_of_more_than_twice_that_ends_the_reading(file: Path) -> None:
    """With the place where it begins."""
    file.write_text('{"n": 1}\n{"a": "' + LONG)
    with pytest.raises(MalformedFileError, match=r"line 2: item 2 has no end within 200 characters"):
        values(file, longest=100)


def test_what_is_no_file_on_a_disk_is_refused() -> None:
    """A pipe or a device has no size, and would be taken for an empty file."""
    with pytest.raises(MalformedFileError, match="/dev/null is a pipe or a device"):
        list(read_items(Path("/dev/null")))


@pytest.mark.parametrize("indent", [None, 2])
def test_memory_is_that_of_a_few_items(file: Path, indent: int | None) -> None:
    """Thirty megabytes of rows pass through one, on one line or on many."""
    file.write_text(json.dumps([{"text": "x" * 10_000}] * 3000, indent=indent))
    tracemalloc.start()
    assert sum(1 for _ in read_items(file, longest=100_000)) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6
