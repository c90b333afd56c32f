"""Several runs as one set of candidates: order, what stands once, and what it needs to hold in memory."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import NO_FILTERS, ExportOptions, MalformedRolloutsError, Origin, export_pairs
from preference.candidate_records import MalformedCandidatesError
from preference.labelled_runs import merge_candidates, recount_tokens, write_candidates
from tests.helpers.trees import (
    Fields,
    WordCounter,
    ada,
    asked,
    candidates_in,
    contents,
    failure,
    prompt,
    query,
    rows,
    siblings,
)


def asked_in(folder: Path, name: str = "candidates.jsonl") -> list[str]:
    return [line["question_id"] for line in rows(folder / name)]


# -- one run ------------------------------------------------------------------------------------------------------


def test_a_run_becomes_states_and_questions_in_its_order(tmp_path: Path) -> None:
    """Every state with at least two steps; every question, whether it failed or not, the failed ones last."""
    candidates_in(tmp_path, ada(), failure(), asked(3))
    assert asked_in(tmp_path) == ["q1", "q1", "q3"]
    assert asked_in(tmp_path, "questions.jsonl") == ["q1", "q3", "q2"]
    assert set(contents(tmp_path)) == {"candidates.jsonl", "questions.jsonl"}


def test_a_failed_question_that_was_explored_after_all_has_one_line(tmp_path: Path) -> None:
    """An unfinished run may hold several error lines and, below them, the tree of the same question."""
    candidates_in(tmp_path, failure("q1"), failure("q2"), failure("q1"), ada(), failure("q2"))
    assert [(line["question_id"], line["error"] is None) for line in rows(tmp_path / "questions.jsonl")] == [
        ("q1", True),
        ("q2", False),
    ]


def test_what_the_run_s_configuration_knows_is_in_every_line(tmp_path: Path) -> None:
    """Beside what the records say themselves, which stays theirs."""
    known = Origin(dataset="toy", split="train", config_hash="0f1e", teacher="gpt-4o", revision="c0ffee")
    write_candidates([ada(), ada(config_hash="another", dataset="other")], tmp_path, origin=known)
    for name in ("candidates.jsonl", "questions.jsonl"):
        found = {tuple(line["origin"][part] for part in ("dataset", "teacher")) for line in rows(tmp_path / name)}
        assert found == {("toy", "gpt-4o"), ("other", None)}


def test_a_question_that_is_asked_twice_stands_together(tmp_path: Path) -> None:
    """Data sets have the same question under two ids; rules about a question then see it whole."""
    first, again = (asked(1, config_hash="a"), asked(1, config_hash="b").model_copy(update={"question_id": "q1b"}))
    candidates_in(tmp_path, first, asked(2), again)
    assert asked_in(tmp_path) == ["q1", "q1b", "q2"]
    summary = export_pairs(tmp_path, tmp_path, NO_FILTERS, ExportOptions(validation=0))
    assert (summary.pairs, summary.dropped["duplicate"]) == (2, 1)


@pytest.mark.parametrize("turns", [None, [], prompt("u")[1:], [*prompt("u"), *prompt("v")]])
def test_a_step_without_its_two_turns_is_refused(turns: list[Fields] | None, tmp_path: Path) -> None:
    """A row without a prompt would train on nothing: question and node are named, and no file appears."""
    bad = siblings(query("who", 0.9), query("what", 0.1, prompt=turns), question_id="bad\x1b[2J")
    with pytest.raises(MalformedRolloutsError, match=r"'bad\\x1b\[2J', node 2: its prompt must be one system turn"):
        candidates_in(tmp_path, asked(1), bad)
    assert list(tmp_path.iterdir()) == []


# -- several ------------------------------------------------------------------------------------------------------


def test_a_tree_that_two_sources_hold_is_taken_once(tmp_path: Path) -> None:
    """A run given twice, or a data set with the runs it was made of: no pair and no cent is counted double."""
    first = candidates_in(tmp_path / "a", asked(1, usage={"calls": 5}), asked(2))
    second = candidates_in(tmp_path / "b", asked(2), asked(3))
    merge_candidates([first, second], tmp_path / "both")
    merge_candidates([first, tmp_path / "both", first], tmp_path / "again")
    assert asked_in(tmp_path / "both") == ["q1", "q2", "q3"]
    assert contents(tmp_path / "again") == contents(tmp_path / "both")
    summary = export_pairs(tmp_path / "again", tmp_path / "again", NO_FILTERS)
    assert (summary.pairs, summary.usage and summary.usage.calls) == (3, 5)


def test_a_tree_is_taken_once_whoever_counted_its_tokens_and_whatever_else_is_known_of_its_run(tmp_path: Path) -> None:
    """A data set of an earlier day, and the run it was made of: the first that is given is taken."""
    write_candidates([ada()], tmp_path / "a", tokens=WordCounter())
    write_candidates([ada()], tmp_path / "b", origin=Origin(dataset="toy", split="train", teacher="gpt-4o"))
    merge_candidates([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    assert contents(tmp_path / "both") == contents(tmp_path / "a")


def test_tokens_are_counted_where_another_counter_or_none_did(tmp_path: Path) -> None:
    """A line that this counter counted stays as it is, to the byte."""
    write_candidates([asked(1)], tmp_path / "a", tokens=WordCounter())
    counted = (tmp_path / "a" / "candidates.jsonl").read_bytes().replace(b"{", b"{ ", 1)
    mixed = candidates_in(tmp_path / "b", asked(2)) / "candidates.jsonl"
    mixed.write_bytes(mixed.read_bytes() + counted)
    recount_tokens(mixed.parent, WordCounter())
    write_candidates([asked(2)], tmp_path / "c", tokens=WordCounter())
    assert mixed.read_bytes() == (tmp_path / "c" / "candidates.jsonl").read_bytes() + counted


def test_trees_whose_steps_are_worth_something_else_are_two(tmp_path: Path) -> None:
    """The same replies with other rewards are other labels. Of what names no run, only equal lines are one."""
    for other in (asked(1, seed=8), siblings(query("who", 0.8), query("what", 0.0), question=asked(1).question)):
        sources = [candidates_in(tmp_path / "a", asked(1)), candidates_in(tmp_path / "b", other)]
        merge_candidates(sources, tmp_path / "both")
        assert len(rows(tmp_path / "both" / "candidates.jsonl")) == 2
    unnamed = tmp_path / "both" / "candidates.jsonl"
    unnamed.write_bytes(re.sub(rb'"config_hash":"\w*"', b'"config_hash":null', unnamed.read_bytes()))
    merge_candidates([unnamed.parent, unnamed.parent], tmp_path / "again")
    assert (tmp_path / "again" / "candidates.jsonl").read_bytes() == unnamed.read_bytes()


def test_a_question_that_failed_in_one_run_and_not_in_another_is_no_failure(tmp_path: Path) -> None:
    """It is one question, and it was explored."""
    question = asked(1).question
    failed = candidates_in(tmp_path / "a", failure("q1", question=question))
    sources = [failed, candidates_in(tmp_path / "b", asked(1))]
    merge_candidates(sources, tmp_path / "both")
    summary = export_pairs(tmp_path / "both", tmp_path / "both", NO_FILTERS)
    assert (summary.questions, summary.failed_questions, summary.questions_with_a_pair) == (1, 0, 1)


def test_a_file_without_its_last_line_break_is_merged_all_the_same(tmp_path: Path) -> None:
    """Somebody's editor took it: the next file's first line does not run into it."""
    first, second = (candidates_in(tmp_path / str(number), asked(number)) for number in (1, 2))
    path = first / "candidates.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    merge_candidates([first, second], tmp_path / "both")
    assert asked_in(tmp_path / "both") == ["q1", "q2"]


@pytest.mark.parametrize("line", [b"\n", b'{"question"'])
@pytest.mark.parametrize("name", ["candidates.jsonl", "questions.jsonl"])
def test_a_line_that_is_no_record_is_refused_by_file_and_line(name: str, line: bytes, tmp_path: Path) -> None:
    """And what was merged before stays."""
    first, second = (candidates_in(tmp_path / str(number), asked(number)) for number in (1, 2))
    merge_candidates([first, second], tmp_path / "both")
    with (second / name).open("ab") as file:
        file.write(line)
    before = (tmp_path / "both" / name).read_bytes()
    with pytest.raises(MalformedCandidatesError, match=rf"2.{name}, line 2 is not a line of"):
        merge_candidates([first, second], tmp_path / "both")
    assert (tmp_path / "both" / name).read_bytes() == before


@given(runs=st.lists(st.lists(st.integers(0, 5), max_size=5, unique=True), min_size=1, max_size=3))
def test_merging_loses_nothing_and_splits_no_question(
    runs: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever runs asked: every line of every source once, questions as they first come, in each the sources as they
    were given."""
    home = tmp_path_factory.mktemp("runs")
    sources = [
        candidates_in(home / str(name), *(asked(number, config_hash=str(name)) for number in numbers))
        for name, numbers in enumerate(runs)
    ]
    merge_candidates(sources, home / "all")
    for name in ("candidates.jsonl", "questions.jsonl"):
        given_lines = [line for source in sources for line in (source / name).read_bytes().splitlines()]
        ids = [json.loads(line)["question_id"] for line in given_lines]
        by_question = sorted(zip(ids, given_lines, strict=True), key=lambda each: ids.index(each[0]))
        assert (home / "all" / name).read_bytes().splitlines() == [line for _, line in by_question]


def test_memory_holds_places_and_no_text(tmp_path: Path) -> None:
    """Merging 100 questions of 200 kB each takes far less memory than their 20 MB."""
    sources = []
    for name in "ab":
        long = (
            siblings(query("a", 0.9, response=name * 200_000), query("b", 0.1), question=f"{n}?", question_id=f"{n}")
            for n in range(50)
        )
        sources.append(candidates_in(tmp_path / name, *long))
    merge_candidates(sources, tmp_path / "warm")
    tracemalloc.start()
    merge_candidates(sources, tmp_path / "both")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "both" / "candidates.jsonl").stat().st_size > 20_000_000
    assert peak < 4_000_000
