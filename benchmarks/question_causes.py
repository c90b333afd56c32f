"""Where the questions of a laboratory die, and which query would have found what no query of theirs found.

Decides which queries are tried: a gold passage's title, the question, and its sub-question where the data set has one
(MuSiQue). Knows no recipe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from gold_teacher import GoldQuestion

from preference.causes import CAUSES, Cause, QuestionCause

TRIED = ("its title", "the question", "its sub-question")
_ANSWER_OF_A_HOP = re.compile(r"#([1-9])")


def finders(found: QuestionCause, question: GoldQuestion) -> Counter[str]:
    """Gold passages that no query of the tree found, and how many of them each query that is tried would have found in
    the top k; `none`: those that none of them would."""
    counts: Counter[str] = Counter()
    for passage_id in found.never_found:
        place = question.question.metadata["gold_ids"].index(passage_id)
        shown = question.facts[place].passage
        hits = [name for name, query in _queries(question, passage_id).items() if shown in question.search(query)]
        counts.update(["never found", *(hits or ["none"])])
    return counts


def _queries(question: GoldQuestion, passage_id: str) -> dict[str, str]:
    asked, metadata = question.question, question.question.metadata
    place = metadata["gold_ids"].index(passage_id)
    hops = metadata.get("question_decomposition") or []
    subs = [hop["question"] for hop in hops if hop["support_id"] == passage_id]
    queries = (question.facts[place].passage[0], asked.question, *(_in_full(each, hops) for each in subs[:1]))
    return dict(zip(TRIED, queries, strict=False))


def _in_full(sub_question: str, hops: Sequence[Mapping[str, str]]) -> str:
    """With the answers of earlier hops in the place of their numbers."""
    return _ANSWER_OF_A_HOP.sub(lambda found: hops[int(found[1]) - 1]["answer"], sub_question)


def cause_rows(explored: Mapping[str, Sequence[tuple[QuestionCause, Counter[str]]]]) -> dict[str, list[str]]:
    """The columns of a table: by recipe the questions of each cause that occurs, then what would have found the gold
    passages that no query found."""
    causes = {name: Counter(found.cause for found, _ in several) for name, several in explored.items()}
    found = {name: sum((each for _, each in several), Counter[str]()) for name, several in explored.items()}
    occurring: list[Cause] = [each for each in CAUSES if any(counts[each] for counts in causes.values())]
    return (
        {"recipe": list(explored), "questions": [str(counts.total()) for counts in causes.values()]}
        | {each.replace("_", " "): [str(counts[each]) for counts in causes.values()] for each in occurring}
        | {
            "gold passages never found": [str(counts["never found"]) for counts in found.values()],
            f"found by {', '.join(TRIED)}, none": [
                ", ".join(str(counts[each]) for each in (*TRIED, "none")) for counts in found.values()
            ],
        }
    )
