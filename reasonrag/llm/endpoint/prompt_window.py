"""Whether an address cuts prompts without a word, as servers do whose context window is smaller than a prompt.

Decides that by what it counted of prompts of all sizes, whatever their order: from some size on, none has more tokens.
Honest counts may be rounded, estimated, without cached tokens or missing, and languages differ in tokens per byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from reasonrag.llm.chat import MOST_BYTES_PER_TOKEN
from reasonrag.run_config import CUT

GRAIN, LEAST_WINDOW = 1.05, 128
"""Sizes that differ by a smaller factor count as one. Tokens; fewer are a number that is said of every prompt."""
EQUAL, NEARLY, GROWTH, NEARLY_GROWTH = 4, 9, 1.25, 2.5
"""Sizes that must have one count; sizes that must have counts within a tenth, or too small for their bytes; and the
factor from the smallest of them to the second largest, more where counts are rounded: for those within a tenth more
than between languages, as passages may all have the same tokens."""
CUT_FROM = CUT + "{} bytes"
"""How a run records it, among what its endpoints refuse."""
CUT_WARNING = (
    "seems to CUT PROMPTS of {:,} bytes and more, as it counts no more tokens in longer ones: steps there, and values "
    "of those before, are worth little, and `pairs` leaves them out (--allow-cut-prompts). Raise its context window "
    "(llama.cpp -c, Ollama OLLAMA_CONTEXT_LENGTH, vLLM --max-model-len and no truncate_prompt_tokens) or show less "
    "(--top-k, --max-passage-chars), and start another --run"
)


class PromptWindow:
    """What one address counted: two numbers for each size, of which there are a few hundred."""

    def __init__(self) -> None:
        self.cut_from: int | None = None
        """Bytes from which prompts are cut; None if none seem to be, by all that was counted until now."""
        self._shown = False
        self._least, self._most = dict[int, int](), dict[int, int]()
        """Tokens by size, in steps of `GRAIN`."""
        self._too_few = set[int]()
        self._rounded_to = 0

    def add(self, size: int, tokens: int | None) -> bool:
        """A prompt of so many bytes; whether it is the first to show that prompts are cut. tokens: None if they are not
        told, or too few for their bytes."""
        step, known = int(math.log(max(size, 1), GRAIN)), self._shown
        if tokens is None:
            self._too_few.add(step)
        elif self._least.get(step, tokens + 1) <= tokens <= self._most.get(step, -1):
            return False
        else:
            self._least[step] = min(tokens, self._least.get(step, tokens))
            self._most[step] = max(tokens, self._most.get(step, tokens))
            self._rounded_to = math.gcd(self._rounded_to, tokens)
        self.cut_from = self._cut_from()
        self._shown = known or self.cut_from is not None
        return self._shown and not known

    def _cut_from(self) -> int | None:
        window = max(self._most.values(), default=0)
        if window < LEAST_WINDOW or window == self._rounded_to or min(self._least.values()) > window / 2:
            return None  # or short prompts have as many
        rounding = (window + self._rounded_to) / (window - self._rounded_to)
        equal, near = self._from_which_all_have(window), self._from_which_all_have(0.9 * window)
        beyond = [step for step in self._too_few if GRAIN**step > window * MOST_BYTES_PER_TOKEN]
        reaching = [step for step, most in self._most.items() if most == window]
        for steps, least, growth, cut in (
            (equal, EQUAL, GROWTH, reaching),
            (near, NEARLY, NEARLY_GROWTH, near),
            (beyond, NEARLY, GROWTH, beyond),
        ):
            if len(steps) >= least and GRAIN ** (sorted(steps)[-2] - min(steps)) >= growth * rounding**2:
                return round(GRAIN ** min(cut))
        return None

    def _from_which_all_have(self, tokens: float) -> list[int]:
        shorter = max((step for step, least in self._least.items() if least < tokens), default=-1)
        return [step for step in self._least if step > shorter]


def recorded_cut(refused: Mapping[str, Iterable[str]]) -> int | None:
    """The least size that is recorded as `CUT_FROM`, of what endpoints refuse by name of the model."""
    every = (each.split() for lessons in refused.values() for each in lessons if each.startswith(CUT))
    return min((int(words[2]) for words in every), default=None)
