"""Words, names and sentences of a text, and drawing one of several proposals by their log-odds."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(0-9])")
WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z][\w'\u2019.-]*(?:(?: (?:of|the|and|de|von|van|for|&))* [A-Z0-9][\w'\u2019.-]*)*")
STOP_WORDS = frozenset(
    "a an the of in on at to for from by with and or as is are was were be been being do does did has have had it "
    "its this that these those he she his her him they their them who whom whose which what when where why how many "
    "much both same also not no yes than then there here into about between first later".split()
)


@dataclass(frozen=True)
class Proposal:
    """A possible reply, with its log-odds at temperature 1."""

    text: str
    logit: float


def sentences(text: str) -> list[str]:
    """The text split into sentences."""
    return _SENTENCE_END.split(text)


def names(text: str) -> list[str]:
    """Capitalised spans in order, without a capital that only begins the sentence as a common word."""
    found = (trim(match[0]) for match in _NAME.finditer(text))
    kept = (name for name in found if len(name) > 1 and name.casefold() not in STOP_WORDS)
    return list(dict.fromkeys(_without_opening_word(name) for name in kept))


def _without_opening_word(name: str) -> str:
    first, _, rest = name.partition(" ")
    return rest if rest and first.casefold() in STOP_WORDS - {"the"} else name


def tagged(tag: str, text: str) -> list[str]:
    """Texts between a tag and the next closing one."""
    closed = text.split(f"</{tag}>")[:-1]
    return [each.partition(f"<{tag}>")[2] for each in closed if f"<{tag}>" in each]


def trim(text: str) -> str:
    return text.strip(" .,;:'\"\u2019-")


def stems(text: str) -> frozenset[str]:
    """Words without stop words, cut to six letters: a stemmer good enough for overlap."""
    return frozenset(word[:6] for word in WORD.findall(text.casefold()) if word not in STOP_WORDS)


def share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def raised(proposals: Iterable[Proposal], by: float) -> list[Proposal]:
    """The proposals with their log-odds raised."""
    return [Proposal(each.text, each.logit + by) for each in proposals]


def best_of_each(options: Iterable[Proposal]) -> list[Proposal]:
    """Each text once, with its highest logit, in order of appearance."""
    best: dict[str, Proposal] = {}
    for option in options:
        key = option.text.casefold()
        if option.text and (key not in best or best[key].logit < option.logit):
            best[key] = option
    return list(best.values())


def draw(options: Sequence[Proposal], temperature: float, dice: random.Random) -> Proposal:
    """Sample by softmax over logits / temperature; the best at temperature 0. Never an empty option."""
    options = [option for option in options if option.text.strip()] or [Proposal("unknown", 0.0)]
    best = max(options, key=lambda option: option.logit)
    if temperature == 0:
        return best
    weights = [math.exp((option.logit - best.logit) / temperature) for option in options]
    return dice.choices(options, weights)[0]
