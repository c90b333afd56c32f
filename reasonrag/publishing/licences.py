"""Licences of the question sets that reasonrag names, each with where that is said; nothing here is a lawyer's word.

Decides the licence that a data set gets where nobody gave one: the strictest that its parts ask for, and none where a
part is not known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reasonrag.data.datasets import ATLAS

WIKIPEDIA = "Wikipedia, CC BY-SA 4.0 (CC BY-SA 3.0 for text from before June 2023)"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Licence:
    """What is known of a question set.

    source: who says so. passages: what its usual corpus is made of; the corpus of a run may be another one.
    """

    licence: str
    source: str
    passages: str = WIKIPEDIA
    language: str = "en"


KNOWN_LICENCES: dict[str, Licence] = {
    "2wikimultihopqa": Licence("Apache-2.0", "licence file of Alab-NII/2wikimultihop"),
    ATLAS: Licence("Apache-2.0", "made up by reasonrag, like its passages", passages="made up by reasonrag"),
    "bamboogle": Licence(
        UNKNOWN, "by Press et al. 2022 (self-ask); no licence was found. Keep its canary string with any copy"
    ),
    "hotpotqa": Licence("CC BY-SA 4.0", "README of hotpotqa/hotpot"),
    "musique": Licence("CC BY 4.0", "licence file of StonyBrookNLP/musique"),
    "nq": Licence("CC BY-SA 3.0", "data set card google-research-datasets/natural_questions"),
    "popqa": Licence("MIT", "licence file of AlexTMallen/adaptive-retrieval"),
    "triviaqa": Licence(
        UNKNOWN, "data set card mandarjoshi/trivia_qa: its authors do not own the copyright of the questions"
    ),
}


def licence_of(datasets: Collection[str]) -> str:
    """The Hub's name of the licence for rows made of these question sets, passages included.

    `cc-by-sa-4.0` where passages of Wikipedia are in them, which must be shared alike; `unknown` where a set is not
    known, because nobody can say what its passages ask for.
    """
    found = [KNOWN_LICENCES.get(each) for each in datasets]
    if not found or None in found:
        return UNKNOWN
    if any(each is not None and each.passages == WIKIPEDIA for each in found):
        return "cc-by-sa-4.0"
    return "apache-2.0"


def languages_of(datasets: Collection[str]) -> list[str]:
    """Codes of the languages; empty where a set is not known."""
    found = [KNOWN_LICENCES.get(each) for each in datasets]
    return sorted({each.language for each in found if each is not None}) if found and None not in found else []
