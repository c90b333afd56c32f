"""Whether an address cuts prompts without a word, as servers do whose context window is smaller than a prompt.

Decides that by what it counted of prompts of all sizes, whatever their order: several of clearly growing size have the
largest count, and no other count is shared. Honest counts may be rounded, estimated or missing, in any language.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from reasonrag.llm.chat import Completion
from reasonrag.run_config import CUT

GRAIN, LEAST_WINDOW = 1.05, 128
"""Sizes that differ by a smaller factor count as one. Tokens; fewer are a number that is said of every prompt."""
EQUAL, GROWTH = 3, 1.25
"""Sizes with the largest count and no other, and the factor from the smallest of them to the second largest."""
OTHERS = 3
"""Other counts that must be known: fewer may be those of an endpoint that rounds them, or pads prompts."""
CUT_FROM = CUT + "{} bytes"
"""How a run records it, among what its endpoints refuse."""
CUT_WARNING = (
    "seems to CUT PROMPTS of {:,} bytes and more, as it counts too few tokens in longer ones: steps there, and values "
    "of those before, are worth little, and `pairs` leaves them out (--allow-cut-prompts). Raise its context window "
    "(llama.cpp -c, Ollama OLLAMA_CONTEXT_LENGTH, vLLM --max-model-len and no truncate_prompt_tokens) or show less "
    "(--top-k, --max-passage-chars), and start another --run"
)


class PromptWindow:
    """What one address counted: two numbers for each size, of which there are a few hundred."""

    def __init__(self) -> None:
        self.cut_from: int | None = None
        """Bytes from which prompts are cut; None if none seem to be, by all that was counted until now."""
        self._told = False
        self._counts = dict[int, tuple[int, int]]()
        """Least and most tokens by size, in steps of `GRAIN`."""

    def add(self, size: int, tokens: int) -> None:
        """A prompt of so many bytes and tokens."""
        step = int(math.log(max(size, 1), GRAIN))
        before = self._counts.get(step)
        least, most = before or (tokens, tokens)
        self._counts[step] = min(tokens, least), max(tokens, most)
        if self._counts[step] != before:
            self.cut_from = self._cut_from()

    def news(self) -> str:
        """That prompts are cut, once; else empty."""
        if self._told or self.cut_from is None:
            return ""
        self._told = True
        return CUT_WARNING.format(self.cut_from)

    def _cut_from(self) -> int | None:
        window = max(most for _, most in self._counts.values())
        only = sum(least == window for least, _ in self._counts.values())
        if window < LEAST_WINDOW or only < EQUAL:
            return None
        others = {each for counts in self._counts.values() for each in counts} - {window}
        if len(others) < max(OTHERS, len(self._counts) - only):
            return None
        steps = sorted(step for step, (_, most) in self._counts.items() if most == window)
        return round(GRAIN ** steps[0]) if GRAIN ** (steps[-2] - steps[0]) >= GROWTH else None


class PromptWindows:
    """The windows of all servers of a journal, by model."""

    def __init__(self) -> None:
        self._of = defaultdict[tuple[str | None, str], PromptWindow](PromptWindow)

    def add(self, model: str | None, first: Completion) -> PromptWindow:
        """Add what a server counted of a prompt, by its first reply, and return the server's window."""
        window = self._of[model, first.server]
        if first.prompt_counted:
            window.add(first.prompt_bytes, first.prompt_counted)
        return window

    def lessons(self, model: str | None) -> list[str]:
        """The lengths from which a model's servers cut prompts, as a run records them."""
        cuts = {each.cut_from for (name, _), each in self._of.items() if name == model}
        return sorted(CUT_FROM.format(each) for each in cuts if each)

    def lessons_by_model(self, teacher: str) -> dict[str, list[str]]:
        """Those of every model that has some. teacher: the name of the model that has none in the journal."""
        return {name or teacher: found for name, _ in self._of if (found := self.lessons(name))}


def recorded_cut(refused: Mapping[str, Iterable[str]]) -> int | None:
    """The least size that is recorded as `CUT_FROM`, of what endpoints refuse by name of the model."""
    every = (each.split() for lessons in refused.values() for each in lessons if each.startswith(CUT))
    return min((int(words[2]) for words in every), default=None)
