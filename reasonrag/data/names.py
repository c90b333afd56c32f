"""What data sets are called: the names that reasonrag knows, their splits, and other spellings of them."""

from __future__ import annotations

import re
from typing import Final

HUB_SPLITS: dict[str, tuple[str, ...]] = {
    "2wikimultihopqa": ("train", "dev"),
    "bamboogle": ("test",),
    "hotpotqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "nq": ("train", "dev", "test"),
    "popqa": ("train", "test"),
    "triviaqa": ("train", "dev", "test"),
}
"""Data sets and splits that reasonrag names: files of FlashRAG's collection, and the two parts of PopQA's test file."""

ATLAS: Final = "atlas"
DATASETS = (ATLAS, *sorted(HUB_SPLITS))
_ALSO_CALLED = {
    "2wiki": "2wikimultihopqa",
    "2wikimqa": "2wikimultihopqa",
    "2wikimultihop": "2wikimultihopqa",
    "2wikimultihopqa": "2wikimultihopqa",
    "hotpot": "hotpotqa",
    "musiqueans": "musique",
    "naturalquestions": "nq",
    "naturalquestionsopen": "nq",
    "nqopen": "nq",
    "trivia": "triviaqa",
} | {name: name for name in DATASETS}
"""Usual spellings, in small letters and without punctuation."""


def canonical_dataset(dataset: str) -> str:
    """The name that reasonrag uses for a data set: `2wikimultihopqa` for `2Wiki`; other names are returned unchanged.

    Case and punctuation are ignored.
    """
    return _ALSO_CALLED.get(re.sub(r"[\W_]", "", dataset).casefold(), dataset)
