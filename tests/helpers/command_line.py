"""What a command left behind, how LLaMA-Factory is asked, and a world that fits on a page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reasonrag.data.questions import Question

QUESTION = Question(id="q1", question="Which river flows through the capital of France?", golden_answers=["Seine"])
CORPUS = (
    ("paris", "Paris", "Paris is the capital of France. It lies on the Seine."),
    ("france", "France", "France is a country in Europe."),
    ("rome", "Rome", "Rome is the capital of Italy. It lies on the Tiber."),
    ("cats", "Cats", "Cats are animals."),
)
"""For tests of one agent and one tree."""


@dataclass(frozen=True)
class Done:
    """What a command left: exit status, stdout and stderr with their line breaks folded."""

    status: int
    out: str
    err: str


def next_commands(shown: str) -> list[list[str]]:
    """The words of each command that a command proposes to go on with, without the program."""
    told = [line.partition("next: reasonrag ") for line in shown.splitlines()]
    return [shlex.split(command) for before, found, command in told if found and not before]


Reasonrag = Callable[..., Done]
AskLlamaFactory = Callable[[str, object], Any]
