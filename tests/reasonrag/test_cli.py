"""The command line as a whole: what it is given is shown, never sent to the terminal as commands for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from reasonrag.cli import GROUPS, app
from reasonrag.terminal import TerminalMessages
from tests.helpers.command_line import Reasonrag

ATTACK = "\x1b]0;x\x07\x1b[2J"
"""Renames the window of a terminal, rings, and clears it."""
STARTS = {"ask --encoder"}
"""What begins a wait for the Hub."""
ASKED = "--questions nowhere --corpus nowhere --model offline --run runs/r"
NEEDED = {
    **dict.fromkeys(("generate", "evaluate"), ASKED),
    "tune": f"{ASKED} --vary search.siblings=3,6",
    **dict.fromkeys(("pairs", "import"), "--out o"),
    "publish": "--repo a/b",
    "index build": "--corpus nowhere",
    "train": "--data nowhere",
}
"""What the settings of a command need, so that it looks at others, too; a flag that is given again counts."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def attacks() -> Iterator[tuple[str, ...]]:
    """Command lines with the attack: in every argument of every command, and in every flag of one command."""
    seen: set[str] = set()
    for words, command in commands(typer.main.get_command(app)):
        flags = [each for each in command.params if each.param_type_name == "option"]
        places = [each for each in command.params if each not in flags]
        needed = [each for each in flags if each.required]
        for attacked in (*places, *needed, *(each for each in flags if each not in needed)):
            flag = attacked.opts[0]
            if getattr(attacked, "is_flag", False) or (attacked in flags and flag in seen):
                continue
            if f"{' '.join(words)} {flag}" in STARTS:
                continue
            seen.add(flag)
            line = [
                *words,
                *NEEDED.get(" ".join(words), "").split(),
                *(ATTACK if each is attacked else "nowhere" for each in places),
            ]
            for each in {each.name: each for each in (*needed, *([attacked] if attacked in flags else []))}.values():
                line += [each.opts[0], ATTACK if each is attacked else "nowhere"]
            yield tuple(line)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_fits_the_terminal_and_ends_with_a_command_line_that_parses(
    words: tuple[str, ...], reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag that was renamed is renamed in the example too."""
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        first, every = (reasonrag(*words, flag).out for flag in ("--help", "--help-all"))
        for shown in (first, every):
            assert max(map(len, shown.partition("\nExample:")[0].splitlines())) <= columns
    example = first.splitlines()[-1].strip()
    assert len(example) <= 78
    assert shlex.split(example)[: len(words) + 1] == ["reasonrag", *words]
    COMMANDS[words].make_context("it", shlex.split(example)[len(words) + 1 :])
    assert len(re.findall(r"^  -", first, re.M)) <= 17, "mark the common flags with common=True"
    flags = {each.opts[0] for each in COMMANDS[words].params if each.param_type_name == "option"}
    assert flags - {"--help-all"} <= set(re.findall(r"^  (--[a-z-]+)", every, re.M))


def test_generate_shows_the_twelve_flags_that_a_newcomer_needs(reasonrag: Reasonrag) -> None:
    """Beside those for help."""
    shown = re.findall(r"^  (--[a-z-]+)", reasonrag("generate", "--help").out, re.M)
    twelve = "dataset limit questions corpus retriever model base-url recipe outcome run max-cost dry-run".split()
    assert shown == [f"--{name}" for name in (*twelve, "help-all", "help")]


def test_the_commands_are_shown_in_groups_in_the_order_of_use(reasonrag: Reasonrag) -> None:
    """Every command is in one."""
    shown = reasonrag("--help").out
    assert re.findall(r"^(\w+):$", shown, re.M) == ["Options", *GROUPS]
    assert re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", shown, re.M) == [
        name for group in GROUPS.values() for name in group
    ]


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("gen", "generate"),
        ("generate --outcome r", "rubric"),
        ("generate --max-co", "--max-cost"),
        ("pairs --format s", "sharegpt sft sft-chosen"),
    ],
)
def test_a_shell_completes_commands_flags_and_their_words(
    line: str, completed: str, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags that only --help-all shows, too."""
    monkeypatch.setenv("_REASONRAG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"reasonrag {line}")
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ") + 1))
    assert reasonrag().out.split() == completed.split()


def test_no_argument_reaches_the_terminal_raw(reasonrag: Reasonrag) -> None:
    """Whatever is wrong with it: flags that typer refuses, values out of range, files that are not there."""
    lines = list(attacks())
    assert len(lines) > 100
    named = 0
    for line in lines:
        done = reasonrag(*line)
        said = done.out + done.err
        assert "\x1b" not in said, (line, said)
        assert "\x07" not in said, (line, said)
        assert "Traceback" not in said, (line, said)
        named += "␛" in said or r"\x1b" in said
    assert named > 25, "it is in many messages"


def test_a_run_of_such_a_name_is_shown_under_a_harmless_one(
    reasonrag: Reasonrag, capsys: pytest.CaptureFixture[str]
) -> None:
    """In tables, in a tree, and in messages of progress."""
    run = f"runs/{ATTACK}"
    TerminalMessages().say(run)
    assert capsys.readouterr().err == "runs/␛]0;x␇␛[2J\n"
    for line in (("generate", "--dataset", "atlas", "--limit", 2, "--run", run), ("show", run)):
        done = reasonrag(*line)
        assert "\x1b" not in done.out + done.err, (line, done)
        assert "␛]0;x␇" in done.out + done.err, (line, done)
    assert Path(run).is_dir()


@pytest.mark.parametrize("words", [("nope",), ("generate", "--limit", "1", "nope")])
def test_a_wrong_command_line_is_explained_without_a_frame(words: tuple[str, ...], reasonrag: Reasonrag) -> None:
    """So that the message can be searched and copied; with how to get help."""
    refused = reasonrag(*words)
    assert refused.status == 2
    assert "Try '" in refused.err
    assert "error: " in refused.err
    assert "nope" in refused.err
