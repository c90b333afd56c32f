"""How many tokens prompts and replies have. Counts; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from preference import Message
from reasonrag.chat import estimate_tokens


class RuleOfThumb:
    """Four characters a token, and a few tokens for the turns: good for English, never exact."""

    name = "four characters a token"
    exact = False

    def prompt(self, prompt: Sequence[Message]) -> int:
        return sum(estimate_tokens(turn.content) + 5 for turn in prompt) + 3

    def reply(self, text: str) -> int:
        return estimate_tokens(text) + 2
