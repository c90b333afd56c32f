"""Ranks: which questions are whose, and what the ranks of a run must share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from reasonrag.errors import InputError
from reasonrag.ranks import (
    Manifest,
    Shard,
    ShardText,
    complete,
    incomplete_ranks,
    join_ranks,
    rank_of,
    read_manifest,
    whole_of,
)

IDS = st.lists(st.text(min_size=1), unique=True, max_size=30)


@given(IDS, st.integers(1, 12))
def test_every_question_is_in_one_shard_whatever_the_others_are(ids: list[str], ranks: int) -> None:
    shards = [Shard(rank, ranks) for rank in range(ranks)]
    assert all(sum(shard.holds(each) for shard in shards) == 1 for each in ids)


def test_the_rule_is_the_one_that_is_documented() -> None:
    """int(sha256(id)[:16], 16) % n, so that other programs can follow it."""
    assert [rank_of(each, 8) for each in ("a", "atlas_train_0_0", "5a8b57f25542995d1e6f1371")] == [2, 0, 5]


@pytest.mark.parametrize("text", ["", "1", "3/3", "-1/2", "0/0", "1/2/3", "0/100001"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be i/n, the i-th of n"):
        TypeAdapter(ShardText).validate_python(text)


def manifest(*ids: str, ranks: int = 2, config_hash: str = "abc") -> Manifest:
    return Manifest(ranks=ranks, config_hash=config_hash, question_ids=list(ids))


def test_ranks_that_start_at_once_agree_on_one_manifest(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as starts:
        list(starts.map(lambda _: join_ranks(tmp_path / "run", manifest("a", "b")), range(8)))
    assert read_manifest(tmp_path / "run") == manifest("a", "b")
    assert {each.name for each in (tmp_path / "run").iterdir()} == {"manifest.json", ".ranks.lock"}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (manifest("a", "b", ranks=3), "is made by 2 ranks, not 3"),
        (manifest("a", "b", config_hash="xyz"), "of 2 questions and the configuration abc, not of these 2 and xyz"),
        (manifest("a"), "of 2 questions and the configuration abc, not of these 1"),
        (manifest("b", "a"), "give all the same questions"),
    ],
)
def test_a_rank_of_another_run_is_refused(tmp_path: Path, other: Manifest, why: str) -> None:
    join_ranks(tmp_path, manifest("a", "b"))
    with pytest.raises(InputError, match=why):
        join_ranks(tmp_path, other)
    assert read_manifest(tmp_path) == manifest("a", "b")


def test_with_more_questions_the_ranks_are_incomplete_until_they_have_run_again(tmp_path: Path) -> None:
    join_ranks(tmp_path, manifest("a", "b"))
    complete(tmp_path, 0, 2)
    complete(tmp_path, 1, 2)
    assert incomplete_ranks(tmp_path, manifest("a", "b")) == []
    join_ranks(tmp_path, manifest("a", "b", "c"))
    complete(tmp_path, 1, 3)
    assert incomplete_ranks(tmp_path, manifest("a", "b", "c")) == [0]


RANKS, IDS_OF_TWO = '"ranks":2', '"question_ids":["a","b"]'
DAMAGED = {
    **{f"ranks is {each}": (RANKS, f'"ranks":{each}', "ranks: ") for each in (0, 300_000_000, 1.5, '"2"')},
    "ranks is missing": (RANKS, '"rank":2', "ranks is missing"),
    "a number for a question": (IDS_OF_TWO, '"question_ids":["a",2]', "question_ids.1: "),
    "a question twice": (IDS_OF_TWO, '"question_ids":["a","b","a"]', "question_ids: 'a' stands there twice"),
    "deep": ("{", '{"a":' * 100_000, "it is not JSON"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_manifest_is_named_with_what_is_wrong(tmp_path: Path, kind: str) -> None:
    old, new, why = DAMAGED[kind]
    join_ranks(tmp_path, manifest("a", "b"))
    path = tmp_path / "manifest.json"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    for use in (read_manifest, lambda run: join_ranks(run, manifest("a", "b"))):
        with pytest.raises(InputError) as refused:
            use(tmp_path)
        assert str(refused.value).startswith(f"{path} is damaged: {why}")
        assert "Restore it, or choose another --run" in str(refused.value)


def test_of_a_huge_manifest_no_more_is_read_than_one_can_have(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"is larger than 268\.4 MB"):
        read_manifest(tmp_path)


def test_a_folder_of_a_rank_knows_its_whole(tmp_path: Path) -> None:
    folder = Shard(1, 2).folder(tmp_path)
    assert whole_of(folder) is None
    join_ranks(tmp_path, manifest("a"))
    assert whole_of(folder) == tmp_path
    assert whole_of(tmp_path) is None
