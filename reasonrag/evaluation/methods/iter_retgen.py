"""Iter-RetGen, and standard RAG, which is one iteration of it.

Decides what is searched and shown; knows no golden answer and no score. Departures from the publication
(arXiv 2305.15294): it shows demonstrations, here the instruction alone says what is wanted; its query has the
generation before the question, here the question is first, so that a cut at the longest query takes nothing of it; the
common budget says how many iterations there are, and --top-k how many passages each shows.
"""

from __future__ import annotations

import re

from reasonrag.evaluation.methods.baseline import BaselineAttempt

_ANSWER_TAG = re.compile(r"<\s*/?\s*answer\s*>", re.IGNORECASE)


async def iter_retgen(name: str, at: BaselineAttempt) -> str | None:
    """Iterates: search with the question and the last generation, generate from the passages; the last generation
    answers (arXiv 2305.15294, section 3). With one iteration: standard RAG.

    name: `iter-retgen`, or `rag`, whose instruction asks for the answer without reasoning.
    """
    answer, generated = None, ""
    for iteration in range(1 if name == "rag" else at.choice.most_searches):
        found = await at.search(f"{at.question.question} {generated}")
        # the same passages make the same prompt, whose next draw must be another one
        answer = await at.answered(name, found, sample=iteration)
        generated = _ANSWER_TAG.sub(" ", at.steps[-1].response)
    return answer
