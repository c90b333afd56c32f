"""What a command left behind, how LLaMA-Factory is asked, and a world that fits on a page."""

from __future__ import annotations

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


Reasonrag = Callable[..., Done]
AskLlamaFactory = Callable[[str, object], Any]
