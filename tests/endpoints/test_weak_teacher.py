"""The weak teacher: its trees are degenerate, and its replies never change."""

from __future__ import annotations

from collections.abc import Callable

import reasonrag
from reasonrag.agent.prompting import render_judgement
from tests.endpoints.weak_teacher import WeakTeacher, reply
from tests.reasonrag.llm.test_offline import (
    ACTIONS,
    PROMPTS,
    QUESTION,
    THOUGHTS,
    prompt_of,
)


def test_a_few_replies_of_every_turn_are_on_file(golden: Callable[[str, bytes], None]) -> None:
    """It is never changed: runs of before are repeated with it."""
    judgement = render_judgement(PROMPTS, question=QUESTION, golden_answers=["Harwick"], thoughts=THOUGHTS)
    chats = [*((str(action), prompt_of(action)) for action in ACTIONS), ("judge", judgement)]
    lines = [
        f"{name} seed {seed} choice {choice}: {reply(messages, temperature=1, seed=seed, choice=choice)}\n"
        for name, messages in chats
        for seed in range(3)
        for choice in range(3)
    ]
    golden("offline_weak_replies.txt", "".join(lines).encode())


def test_its_trees_are_degenerate() -> None:
    """It is wrong on whole questions, and repeats them as queries."""
    summary = reasonrag.generate(dataset="atlas", limit=16, chat_model=WeakTeacher(), run="weak")
    assert min(summary.degenerate[sign] for sign in ("all_wrong", "never_answers", "query_is_question")) > 1
