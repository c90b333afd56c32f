"""Runs and data sets as Python objects."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

import pytest

import reasonrag
from preference import RolloutRecord
from reasonrag.errors import InputError
from reasonrag.viewing.load import Pairs
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, until


@pytest.fixture
def explored() -> None:
    reasonrag.generate(dataset="atlas", limit=6, run="runs/a")
    reasonrag.pairs("runs/a", out="data/a")


@pytest.mark.usefixtures("explored")
def test_what_is_loaded_is_what_was_written_also_as_a_dataset() -> None:
    trees = reasonrag.load_rollouts("runs/a")
    records = list(trees)
    assert len(trees) == len(records) == 6
    assert all(isinstance(each, RolloutRecord) for each in records)

    rows = reasonrag.load_pairs("data/a")
    table = rows.to_dataset()
    assert table.num_rows == len(rows) > 0
    assert table[0] == rows[0]
    with pytest.raises(InputError, match="there is no "):
        reasonrag.load_rollouts("data/a")
    with pytest.raises(InputError, match="has no train pairs"):
        reasonrag.load_pairs("runs/a")
    Path("data/a/RAG_ProGuide.json").write_text("[3]")
    with pytest.raises(InputError, match=r"RAG_ProGuide.json, row 1: this is not a JSON object"):
        reasonrag.load_pairs("data/a")


@pytest.mark.usefixtures("explored")
def test_a_notebook_shows_what_a_call_returns() -> None:
    """Summaries, a question with its tree and pairs, rows and a row: as small HTML that runs nothing."""
    rows = reasonrag.load_pairs("data/a")
    seen = reasonrag.show("data/a", rows[0]["question_id"])
    step = seen.trees[0].steps[1]
    for shown, says in (
        (reasonrag.generate(dataset="atlas", limit=6, run="runs/a"), "6 done, 0 failed"),
        (reasonrag.pairs("runs/a", out="data/a"), "by chosen action"),
        (reasonrag.stats("runs/a"), "where questions die"),
        (reasonrag.audit("data/a"), '<p class="verdict passed">'),
        (seen, f"<li>#{step.id} {step.type} "),
        (rows, f"of {len(rows)} pairs"),
        (rows[0], f"pair {rows[0]['pair_id']}"),
    ):
        html = shown._repr_html_()
        assert says in html
        assert "<script" not in html
        assert len(html) < 100_000


def test_a_value_of_the_wrong_type_is_bad_input() -> None:
    rows = Pairs([{"layer": "three"}])
    with pytest.raises(InputError, match=r"another type than its column: .*three"):
        rows.to_dataset()


@pytest.mark.usefixtures("explored")
def test_a_damaged_line_is_named_when_it_is_reached() -> None:
    path = Path("runs/a/rollouts.jsonl")
    first, second, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:100])
    trees = iter(reasonrag.load_rollouts(path))
    next(trees)
    with pytest.raises(InputError, match=r"rollouts.jsonl, line 2") as caught:
        next(trees)
    shown = traceback.format_exception(caught.value)
    assert len([line for line in shown if line.startswith("Traceback")]) == 1


@pytest.mark.parametrize(
    ("size", "most", "advised"),
    [
        pytest.param(15, 1, True, id="more than ten times the page"),
        pytest.param(15, 2, False, id="less than ten times the page"),
    ],
)
def test_who_would_wait_for_a_sample_is_first_told_how_to_see_all(
    request: pytest.FixtureRequest, *, size: int, most: int, advised: bool
) -> None:
    """Before anything is read: the advice comes even where the first line cannot be."""
    Path("run").mkdir()
    Path("run/rollouts.jsonl").write_bytes(b"?\n" + bytes(size * 10**6))
    command: Reasonrag = request.getfixturevalue("reasonrag")
    done = command("view", "run", "--max-mb", most)
    said = f"run has {size} MB: the page will hold the trees of a sample, at most {most} MB."
    assert done.status == 2
    assert done.err.startswith(f"{said} To see every tree, at once: reasonrag view run --serve error: ") == advised


@pytest.mark.usefixtures("explored")
@pytest.mark.parametrize(
    ("command", "instead"),
    [
        pytest.param(
            "view", "; no page was written. To see every tree, at once: reasonrag view 'a lot' --serve", id="view"
        ),
        pytest.param("stats", "", id="stats"),
    ],
)
def test_what_is_interrupted_says_what_it_did(command: str, instead: str) -> None:
    """And what shows much at once; exit status 130, as of all commands, and no page that is half written."""
    lines = Path("runs/a/rollouts.jsonl").read_bytes()
    Path("a lot").mkdir()
    Path("a lot/rollouts.jsonl").write_bytes(lines * (110 * 10**6 // len(lines)))
    with Command(command, "a lot") as running:
        until(lambda: "reading a lot (1" in running.err)
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
    [told] = [line for line in running.err.splitlines() if line.startswith(("interrupted", "continue"))]
    assert told.partition("MB)")[::2] == ("interrupted while reading a lot (110 ", instead)
    assert [each.name for each in Path("a lot").iterdir()] == ["rollouts.jsonl"]
