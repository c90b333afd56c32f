"""The weak teacher: its trees are degenerate."""

from __future__ import annotations

import reasonrag
from tests.endpoints.weak_teacher import WeakTeacher


def test_its_trees_are_degenerate() -> None:
    """It is wrong on whole questions, and searches until it must answer."""
    summary = reasonrag.generate(dataset="atlas", limit=16, chat_model=WeakTeacher(), run="weak")
    assert min(summary.degenerate[sign] for sign in ("all_wrong", "answered_only_when_forced")) > 1
