"""Licences of the question sets that reasonrag knows, each with its source; none of this is legal advice.

Decides the default licence of a data set: the strictest that its parts require, and unknown if a part is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reasonrag.data.settings import ATLAS

WIKIPEDIA = "Wikipedia, CC BY-SA 4.0 (CC BY-SA 3.0 for text from before June 2023)"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Licence:
    """What is known of a question set.

    source: where the licence is stated. passages: licence of its usual corpus; a run may use another one.
    """

    licence: str
    source: str
    passages: str = WIKIPEDIA


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
    """The Hub's identifier of the licence for rows made from these question sets, passages included.

    `cc-by-sa-4.0` if passages come from Wikipedia, which requires share-alike; `unknown` if a set is unknown, because
    the licence of its passages is too.
    """
    if not datasets or not KNOWN_LICENCES.keys() >= {*datasets}:
        return UNKNOWN
    return "cc-by-sa-4.0" if any(KNOWN_LICENCES[each].passages == WIKIPEDIA for each in datasets) else "apache-2.0"
