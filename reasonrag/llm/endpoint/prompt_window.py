"""Whether an address cuts prompts without a word, as servers do whose context window is smaller than a prompt.

Decides that by what it counted of prompts of all sizes, whatever their order: from some size on, none has more tokens,
or prompts have fewer than words and than shorter ones. Honest counts may be rounded, estimated, without cached tokens
or missing, and languages differ in tokens per byte.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from reasonrag.llm.chat import Completion
from reasonrag.run_config import CUT, cuts_in

GRAIN, LEAST_WINDOW = 1.05, 128
"""Sizes that differ by a smaller factor count as one. Tokens; fewer are a number that is said of every prompt."""
EQUAL, NEARLY, GROWTH, NEARLY_GROWTH = 3, 9, 1.25, 2.5
"""Sizes that must have one count; sizes that must have counts within a tenth; and the factor from the smallest of them
to the second largest, more where counts are rounded: for those within a tenth more than between languages, as passages
may all have the same tokens."""
SAME = 6
"""Sizes of which some prompt must have the largest count, where counts are exact and `EQUAL` have no other."""
LACKING, LEFT, FULL = 5, 0.2, 0.95
"""Sizes that must lack tokens, the part of the window that a cut leaves, and the part that fills it."""
FEW = 5
"""Sizes of prompts for each different count, from which on counts are taken for padded."""
CUT_FROM = CUT + "{} bytes"
"""How a run records it, among what its endpoints refuse."""
CUT_WARNING = (
    "seems to CUT PROMPTS of {:,} bytes and more, as it counts too few tokens in longer ones: steps there, and values "
    "of those before, are worth little, and `pairs` leaves them out (--allow-cut-prompts). Raise its context window "
    "(llama.cpp -c, Ollama OLLAMA_CONTEXT_LENGTH, vLLM --max-model-len and no truncate_prompt_tokens) or show less "
    "(--top-k, --max-passage-chars), and start another --run"
)
NOT_CUT = "does not cut prompts of that length: longer ones have more tokens"


class PromptWindow:
    """What one address counted: three numbers for each size, of which there are a few hundred."""

    def __init__(self) -> None:
        self._known: tuple[int | None] | None = None
        self._told = list[int]()
        """The largest count at each piece of news."""
        self._least, self._most, self._spare = dict[int, int](), dict[int, int](), dict[int, int]()
        """Tokens by size, in steps of `GRAIN`, and the least that a prompt has beyond those that it must have."""
        self._rounded_to = 0

    def add(self, size: int, tokens: int, least: int) -> None:
        """A prompt of so many bytes and tokens. least: those that it must have, as `ChatRequest.least_tokens`."""
        step = int(math.log(max(size, 1), GRAIN))
        before = self._least.get(step), self._most.get(step), self._spare.get(step), self._rounded_to
        self._least[step] = min(tokens, self._least.get(step, tokens))
        self._most[step] = max(tokens, self._most.get(step, tokens))
        self._spare[step] = min(tokens - least, self._spare.get(step, tokens - least))
        if tokens >= LEAST_WINDOW:
            self._rounded_to = math.gcd(self._rounded_to, tokens)
        if before != (self._least[step], self._most[step], self._spare[step], self._rounded_to):
            self._known = None

    @property
    def cut_from(self) -> int | None:
        """Bytes from which prompts are cut; None if none seem to be, by all that was counted until now."""
        if self._known is None:
            self._known = (self._cut_from(),)
        return self._known[0]

    def news(self) -> str:
        """That prompts are cut, or that longer ones show that they are not, once each; else empty."""
        window = max(self._most.values(), default=0)
        if self._told:
            new = len(self._told) == 1 and self.cut_from is None and window > self._told[0]
        else:
            new = self.cut_from is not None
        if not new:
            return ""
        self._told.append(window)
        return NOT_CUT if self.cut_from is None else CUT_WARNING.format(self.cut_from)

    def _cut_from(self) -> int | None:
        window = max(self._most.values(), default=0)
        if window < LEAST_WINDOW or min(self._least.values()) > window / 2:
            return None  # or short prompts have as many
        grain = max(self._rounded_to, self._last_digit(window), self._padding(window))
        rounding = ((window + grain) / (window - grain)) ** 2 if grain < window else math.inf
        equal, near = self._from_which_all_have(window), self._from_which_all_have(0.9 * window)
        exact = grain == 1 and len({*self._least.values(), *self._most.values()}) >= len(self._least)
        whole = exact and list(self._least.values()).count(window) >= EQUAL
        same = [step for step, most in self._most.items() if most == window] if whole else []
        for steps, least, growth, full in (
            (equal, EQUAL, GROWTH * rounding, window),
            (same, SAME, GROWTH, window),
            (near, NEARLY, NEARLY_GROWTH * rounding, math.inf),
            (self._lacking(window), LACKING, GROWTH, FULL * window),
        ):
            if len(steps) >= least and GRAIN ** (sorted(steps)[-2] - min(steps)) >= growth:
                return round(GRAIN ** min([*steps, *(step for step, most in self._most.items() if most >= full)]))
        return None

    def _lacking(self, window: int) -> list[int]:
        """Sizes of prompts that lack tokens that they must have: half of those from the smallest of them on, beyond
        one that fills the window, or all counts are low. None of theirs is small, or what is cached is not counted."""
        digit, small = self._last_digit(window), min(self._least.values()) < LEAST_WINDOW
        grain = max(digit, self._padding(window), 0 if small else self._rounded_to)  # a small count: not rounded down
        lacking = {step for step, spare in self._spare.items() if spare + grain < 0}
        if any(self._least[step] < LEFT * window for step in lacking):
            return []
        full = min(step for step, most in self._most.items() if most >= FULL * window)
        found = list[int]()
        half = 0
        for longer, step in enumerate(sorted(self._spare, reverse=True), start=1):
            if step in lacking and step > full:
                found.append(step)
                half = len(found) if 2 * len(found) >= longer else half
        return found[:half]

    def _from_which_all_have(self, tokens: float) -> list[int]:
        shorter = max((step for step, least in self._least.items() if least < tokens), default=-1)
        return [step for step in self._least if step > shorter]

    def _padding(self, window: int) -> int:
        """Where few sizes of padding stand for all, the distance from the largest to the one below."""
        counts = {*self._least.values(), *self._most.values()} - {window}
        return window - max(counts) if 1 < len(counts) < len(self._least) / FEW else 0

    def _last_digit(self, window: int) -> int:
        """What the last digit of counts is worth in the largest, where they are rounded to so many digits."""
        counts = [each for each in {*self._least.values(), *self._most.values()} if each >= LEAST_WINDOW]
        return max(
            int(base ** (len(format(window, how)) - max(len(format(each, how).rstrip("0")) for each in counts)))
            for base, how in ((2, "b"), (10, "d"))
        )


class PromptWindows:
    """The windows of all servers of a journal, by model."""

    def __init__(self) -> None:
        self._of = defaultdict[tuple[str | None, str], PromptWindow](PromptWindow)

    def add(self, model: str | None, first: Completion) -> PromptWindow:
        """Add what a server counted of a prompt, by its first reply, and return the server's window."""
        window = self._of[model, first.server]
        if first.prompt_counted:
            window.add(first.prompt_bytes, first.prompt_counted, first.prompt_least)
        return window

    def lessons(self, model: str | None) -> list[str]:
        """The lengths from which a model's servers cut prompts, as a run records them."""
        cuts = {each.cut_from for (name, _), each in self._of.items() if name == model}
        return sorted(CUT_FROM.format(each) for each in cuts if each)

    def lessons_of_ranks(self, teacher: str, refused: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """The lengths of each model that some rank recorded as cutting prompts, where the joined journal shows them. A
        rank's trial request is in no journal, so a short prompt is added for such a model. teacher: the name of the
        model that has none in the journal."""
        names = {name or teacher: name for name, _ in self._of}
        cutting = {name for name in names if recorded_cut({name: refused.get(name, ())})}
        for (name, _), window in self._of.items():
            if (name or teacher) in cutting:
                window.add(1, 1, 1)
        return {name: found for name in cutting if (found := self.lessons(names[name]))}


def recorded_cut(refused: Mapping[str, Iterable[str]]) -> int | None:
    """The least size that is recorded as `CUT_FROM`, of what endpoints refuse by name of the model."""
    every = (each.split() for lessons in refused.values() for each in cuts_in(lessons))
    return min((int(words[2]) for words in every), default=None)
