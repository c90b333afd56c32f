"""What the commands print fits the terminal: at 80 columns, and at 120 it uses the room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

import reasonrag as package
from tests.helpers.command_line import Reasonrag

WHOLE = re.compile(r"\S*(wrote|next|all candidates|audit|continue with|explore with it|one pair|showing|reasonrag)\b")
"""How a line begins that is to be copied, and so is not broken."""
ASKED = ("--dataset", "atlas", "--limit", "4", "--model", "offline")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its data set and two evaluations."""
    place = tmp_path_factory.mktemp("screens")
    package.generate(dataset="atlas", limit=4, model="offline", run=place / "run", yes=True)
    package.pairs(place / "run", out=place / "data")
    for method in ("rag", "agent"):
        package.evaluate(dataset="atlas", limit=4, model="offline", method=method, run=place / method)
    return place


@pytest.mark.parametrize("width", [80, 120])
def test_no_screen_is_wider_than_the_terminal(
    reasonrag: Reasonrag, place: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, trees and sentences of every command that prints some; and no table breaks a number or an interval."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    [first, *_] = package.load_pairs(place / "data")
    commands = [
        ("generate", *ASKED, "--run", "again"),
        ("generate", *ASKED, "--run", "again", "--dry-run"),
        ("pairs", place / "run", "--out", "data"),
        ("stats", place / "run"),
        ("audit", place / "data"),
        ("show", place / "run", first["question_id"]),
        ("show", place / "data", first["question_id"], "--pair", first["pair_id"]),
        ("evaluate", *ASKED, "--run", "evaluated"),
        ("compare", place / "rag", place / "agent"),
        ("calibrate", place / "run", "--revalue", "4", "--k", "2"),
        (
            "tune",
            "--dataset",
            "atlas",
            "--model",
            "offline",
            "--pilot",
            "2",
            "--vary",
            "search.siblings=3,4",
            "--run",
            "t",
        ),
        ("doctor", "qwen2.5-7b-dpo-lora", "--data", place / "data"),
    ]
    widest = 0
    for command in commands:
        done = reasonrag(*command)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in done.out.splitlines()]
        assert (done.status, len(lines) > 4) == (0, True), (command, done.err)
        assert [line for line in lines if cell_len(line) > width and not WHOLE.match(line)] == [], command
        assert [line for line in lines if re.search(r"\d \((\S+ to)? *│|[\d.] to *│", line)] == [], command
        widest = max([widest, *(cell_len(line) for line in lines if line.startswith(("│", "┃")))])
    assert width - 8 < widest <= width
