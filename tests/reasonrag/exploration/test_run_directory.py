"""Run directories: one writer, one configuration, and lines that survive a crash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import RolloutRecord, read_rollouts
from reasonrag.errors import InputError
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.files import CONFIG, FAILURES, ROLLOUTS
from reasonrag.run_config import RunConfig, note_refusals
from tests.helpers.command_line import Reasonrag
from tests.helpers.trees import failure, siblings
from tests.reasonrag.data.test_compressed import silent

CONFIGURATION = RunConfig.model_validate(
    {"config_hash": "c0", "decides_answers": {"seed": 0, "model": "m"}, "operational": {}}
)


def rollout(question_id: str, *, failed: bool = False) -> RolloutRecord:
    """A tree, or the line of a question that has none."""
    made = failure(question_id) if failed else siblings(question_id=question_id)
    return made.model_copy(update={"config_hash": CONFIGURATION.config_hash})


def open_run(path: Path, **decides_answers: Any) -> RunDirectory:
    """A run directory with the usual configuration, apart from these keys."""
    decides = CONFIGURATION.decides_answers.model_dump() | decides_answers
    config = RunConfig.model_validate(CONFIGURATION.model_dump() | {"decides_answers": decides})
    return RunDirectory(path, config, say=silent)


def refusal(run: RunDirectory) -> str:
    """What is said when a run directory cannot be opened."""
    try:
        with run:
            pass
    except InputError as error:
        return str(error)
    pytest.fail("it was opened")


def question_ids(path: Path) -> list[str]:
    return [each.question_id for each in read_rollouts(path / ROLLOUTS)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the run goes; it does not exist yet."""
    return tmp_path / "runs" / "one"


def fill(home: Path, *question_ids: str) -> bytes:
    """A finished run with these trees; its bytes."""
    with open_run(home) as run:
        for question_id in question_ids:
            run.append(rollout(question_id))
    return (home / ROLLOUTS).read_bytes()


def test_a_run_has_its_configuration_before_its_first_tree_and_each_tree_when_append_returns(home: Path) -> None:
    """A run killed at once can still be told from another; one line per question, whole, while the run is still
    open."""
    with open_run(home) as run:
        assert (home / CONFIG).read_bytes() == CONFIGURATION.to_bytes()
        assert (home / ROLLOUTS).read_bytes() == b""
        for question_id in "ab":
            run.append(rollout(question_id))
            assert (home / ROLLOUTS).read_bytes().endswith(rollout(question_id).to_line())
    assert list(read_rollouts(home / ROLLOUTS)) == [rollout("a"), rollout("b")]


# -- what is owed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        ([], False),
        (["b"], False),
        (["a"], True),
        (["a!"], False),
        (["a!", "b", "a!", "a"], True),
        (["a!", "b", "a!"], False),
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_question_is_done_once_it_has_a_tree(lines: list[str], *, done: bool, reopened: bool, home: Path) -> None:
    """An error line alone leaves it owed, now and on the next run; a later tree takes the error's place."""
    with open_run(home) as run:
        for line in lines:
            run.append(rollout(line[0], failed=line.endswith("!")))
        assert run.is_done("a") is done
    if reopened:
        with open_run(home) as run:
            assert run.is_done("a") is done


@given(data=st.data())
def test_a_run_goes_on_wherever_it_was_killed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut at any byte, the file keeps its whole lines; what else was in it is owed again, and ends up the same. The
    message has file, line and size, and what becomes of the question."""
    home = tmp_path_factory.mktemp("run")
    whole = fill(home, "a", "ß", "c")
    cut = data.draw(st.integers(0, len(whole)))
    (home / ROLLOUTS).write_bytes(whole[:cut])
    messages: list[str] = []
    with RunDirectory(home, CONFIGURATION, say=messages.append) as run:
        kept = [each for each in ("a", "ß", "c") if run.is_done(each)]
        assert len(kept) == whole[:cut].count(b"\n")
        torn = whole[:cut].rpartition(b"\n")[2]
        removed = f"line {len(kept) + 1} was cut off by an earlier stop; removed its {len(torn):,} bytes"
        told = f"{home / ROLLOUTS}: {removed}, its question will be explored again"
        assert messages == ([told] if torn else [])
        for question_id in ("a", "ß", "c"):
            if not run.is_done(question_id):
                run.append(rollout(question_id))
    assert (home / ROLLOUTS).read_bytes() == whole


@pytest.mark.parametrize("line", [b"", b"torn", b"{}", b'{"question_id": "b"}', b"[]"])
def test_a_broken_line_in_the_middle_is_refused_with_its_number(line: bytes, home: Path) -> None:
    """That is no crash of ours, so nothing is repaired; the user decides, and nothing was changed."""
    first, _, third = fill(home, "a", "b", "c").splitlines(keepends=True)
    content = first + line + b"\n" + third
    (home / ROLLOUTS).write_bytes(content)
    message = refusal(open_run(home))
    assert re.search(r"rollouts\.jsonl, line 2 is not .*Remove the line to have its question", message)
    assert (home / ROLLOUTS).read_bytes() == content


# -- one writer, one configuration -----------------------------------------------------------------------------


def test_a_run_takes_one_writer_at_a_time(home: Path) -> None:
    """The second is refused while the first is open, leaves everything as it was, and is welcome afterwards."""
    fill(home, "b")
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    with open_run(home):
        message = refusal(open_run(home, seed=1))
        assert message == f"{home} is being written by another reasonrag; wait for it or choose another --run"
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    with open_run(home) as run:
        run.append(rollout("a"))


def test_the_length_from_which_prompts_are_cut_is_the_latest(home: Path) -> None:
    """Of a model; what was refused otherwise stays."""
    with open_run(home):
        note_refusals(home, {"m": ["messages from 2900 bytes", "n"], "other": ["messages from 7 bytes"]})
        for refused, kept in ((["messages from 3100 bytes"], ["messages from 3100 bytes", "n"]), ([], ["n"])):
            noted = note_refusals(home, {"m": refused})
            assert noted == note_refusals(home, {}) == {"m": kept, "other": ["messages from 7 bytes"]}


def test_operational_settings_may_change_and_everything_may_before_the_first_line(home: Path) -> None:
    """Only what decides answers is compared, once there are any; the file has what was used last."""
    fill(home)
    with open_run(home, seed=5) as run:
        run.append(rollout("a"))
    before = orjson.loads((home / CONFIG).read_bytes())
    assert before["decides_answers"]["seed"] == 5
    newer = RunConfig.model_validate(before | {"operational": {"concurrency": 64}})
    with RunDirectory(home, newer, say=silent) as run:
        assert run.is_done("a")
    assert (home / CONFIG).read_bytes() == newer.to_bytes()


def test_another_configuration_is_refused_with_every_key_that_differs(home: Path) -> None:
    """Trees of two configurations would not be comparable; the run keeps its own."""
    fill(home, "a")
    expected = (
        r"holds a run with another configuration; its trees and answers cannot be used for this one\. "
        r"Changed: model was 'm', is 'n'; top_k was None, is 3\. "
        r"Choose another --run, or the settings in .*config\.json$"
    )
    assert re.search(expected, refusal(open_run(home, model="n", top_k=3)))
    assert "As to prompts, give the folder they are in by --prompts" in refusal(open_run(home, prompts="0"))
    assert (home / CONFIG).read_bytes() == CONFIGURATION.to_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"has rollouts\.jsonl but no config\.json, so how it was made is unknown\. Choose another --run"),
        (b"{", r"config\.json is damaged: it is not JSON: .*Choose another --run"),
        (b"{}", r"config\.json is damaged: .*\. Choose another --run"),
    ],
)
def test_trees_without_a_readable_configuration_are_not_added_to(
    content: bytes | None, message: str, home: Path
) -> None:
    """Nobody can say whether they would be comparable."""
    fill(home, "a")
    (home / CONFIG).unlink()
    if content is not None:
        (home / CONFIG).write_bytes(content)
    assert re.search(message, refusal(open_run(home)))


# -- the clean end ---------------------------------------------------------------------------------------------


def marks(text: str) -> list[str]:
    """`ab!` as `a` and `b!`."""
    return [text[i : i + 1 + text.startswith("!", i + 1)] for i in range(len(text)) if text[i] != "!"]


@pytest.mark.parametrize(
    ("written", "order", "left"),
    [
        ("", "abc", ""),
        ("cab", "abc", "abc"),
        ("a!a", "ab", "a"),
        ("b!ab", "ab", "ab"),
        ("b!a", "ab", "ab!"),
        ("dcba", "ab", "abdc"),
        ("abcd", "", "abcd"),
    ],
)
def test_a_clean_end_puts_lines_in_question_order(written: str, order: str, left: str, home: Path) -> None:
    """Superseded error lines go, other questions' trees stay behind, and the run can go on from there.

    A letter is a question's tree; followed by `!` it is an error line.
    """
    with open_run(home) as run:
        for mark in marks(written):
            run.append(rollout(mark[0], failed=mark.endswith("!")))
        run.sort_by_question(order)
    expected = [rollout(mark[0], failed=mark.endswith("!")) for mark in marks(left)]
    assert (home / ROLLOUTS).read_bytes() == b"".join(each.to_line() for each in expected)
    with open_run(home) as run:
        assert {each for each in "abcd" if run.is_done(each)} == {m for m in marks(left) if not m.endswith("!")}


def test_putting_in_order_replaces_the_file_at_once(home: Path) -> None:
    """Whoever reads the old file reads it to its end; no temporary file is left. A new line goes into the new file, and
    the order can be made again."""
    with open_run(home) as run:
        for question_id in "ba":
            run.append(rollout(question_id))
        before = (home / ROLLOUTS).read_bytes()
        with (home / ROLLOUTS).open("rb") as reader:
            run.sort_by_question("abc")
            assert reader.read() == before
        run.append(rollout("c"))
        assert question_ids(home) == ["a", "b", "c"]
        run.sort_by_question("cab")
    assert question_ids(home) == ["c", "a", "b"]
    assert {path.name for path in home.iterdir()} == {".lock", CONFIG, ROLLOUTS, FAILURES}


@pytest.mark.parametrize("other", [b"reasonrag.rollouts/0", b"reasonrag.rollouts/2"])
def test_a_run_of_another_version_is_not_to_be_mended(other: bytes, home: Path, reasonrag: Reasonrag) -> None:
    """Its lines are whole: nothing is to be removed, and generate would not help."""
    content = fill(home, "a", "b").replace(b"reasonrag.rollouts/1", other)
    (home / ROLLOUTS).write_bytes(content)
    refused = refusal(open_run(home))
    assert "written by another version of reasonrag" in refused
    assert "Use that version, or choose another --run" in refused
    pairs = reasonrag("pairs", home, "--out", "data/a")
    assert (pairs.status, "written by another version of reasonrag" in pairs.err) == (2, True)
    for message in (refused, pairs.err):
        assert "Remove" not in message
        assert "mends" not in message
    assert (home / ROLLOUTS).read_bytes() == content


def test_only_a_torn_last_line_is_mended_by_generate(home: Path, reasonrag: Reasonrag) -> None:
    """A line that is broken in the middle stays as it is, so pairs does not send anybody there."""
    first, second = fill(home, "a", "b").splitlines(keepends=True)
    (home / ROLLOUTS).write_bytes(first + second[:50])
    assert "the same generate command again mends the file" in reasonrag("pairs", home, "--out", "data/a").err
    (home / ROLLOUTS).write_bytes(second[:50] + b"\n" + first)
    broken = reasonrag("pairs", home, "--out", "data/a")
    assert (broken.status, "line 1 is not JSON" in broken.err, "mends" in broken.err) == (2, True, False)
