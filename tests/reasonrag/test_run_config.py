"""config.json: what is kept of it, what other stages read of it, and what a change is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.export.private_files import INDENTED
from reasonrag.run_config import RunConfig, changed_keys, find_config

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda nested: st.lists(nested, max_size=2) | st.dictionaries(st.text(max_size=3), nested, max_size=3),
    max_leaves=8,
)
unread = st.dictionaries(st.sampled_from(["seed", "mixture", "rpm", "a"]), values, max_size=4)
read = st.fixed_dictionaries({}, optional={"model": st.text(max_size=3), "top_k": st.integers(), "sampling": unread})


@given(st.permutations(["config_hash", "decides_answers", "operational", "more"]), read, unread, unread, values)
def test_what_was_read_is_written_byte_by_byte(
    order: list[str], decides: dict[str, Any], others: dict[str, Any], operational: dict[str, Any], more: Any
) -> None:
    """In its order, with the keys that no stage reads."""
    content = {"config_hash": "c0", "decides_answers": decides | others, "operational": operational, "more": more}
    written = orjson.dumps({name: content[name] for name in order}, option=INDENTED)
    assert RunConfig.model_validate(orjson.loads(written)).to_bytes() == written


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, []),
        ({"b": 1}, {"a": "x"}, ["a was None, is 'x'", "b was 1, is None"]),
        ({"a": {"deep": 1}}, {"a": {"deep": 2}}, ["a.deep was 1, is 2"]),
        ({"a": {}}, {"a": {"extra_body": {"b": {}, "c": None}}}, ["a.extra_body was None, is {'b': {}, 'c': None}"]),
    ],
)
def test_changed_keys_are_named_with_both_values(
    before: dict[str, Any], now: dict[str, Any], changes: list[str]
) -> None:
    """In the order of their names; a missing key is None."""
    assert changed_keys(before, now) == changes


def test_what_the_file_does_not_say_is_empty(tmp_path: Path) -> None:
    """Of imported trees and published runs; what is no configuration is none."""
    (tmp_path / "config.json").write_bytes(b'{"decides_answers": {"model": "m"}}')
    found = find_config(tmp_path / "config.json")
    assert found
    assert (found.decides_answers.model, found.decides_answers.student, found.operational) == ("m", None, None)
    for content in (b'{"decides_answers": "m"}', b'{"decides_answers": {"model": ["m"], "top_k": 3}}'):
        (tmp_path / "config.json").write_bytes(content)
        assert find_config(tmp_path / "config.json") is find_config(tmp_path / "none.json") is None
