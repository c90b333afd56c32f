"""Iter-RetGen, and standard RAG, which is one iteration of it.

Decides what is searched and shown; knows no golden answer and no score. Departures from the publication
(arXiv 2305.15294): it shows demonstrations, here the instruction alone says what is wanted; its query has the
generation before the question, here the question is first, so that a cut at the longest query takes nothing of it; the
common budget says how many iterations there are, and --top-k how many passages each shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reasonrag.agent.model_calls import ModelCaller
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import BaselinePrompts, in_style, render_baseline
from reasonrag.evaluation.methods.choice import BaselineName
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.replies import answered, as_query
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.retrieval.retriever import Retriever

_ANSWER_TAG = re.compile(r"<\s*/?\s*answer\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class IterRetGen:
    """Iterates: search with the question and the last generation, generate from the passages; the last generation
    answers (arXiv 2305.15294, section 3). With one iteration: standard RAG.

    name: `iter-retgen`, or `rag`, whose instruction asks for the answer without reasoning.
    """

    name: BaselineName
    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    iterations: int

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        steps: list[PredictedStep] = []
        read: dict[str, Passage] = {}
        answer = None
        for iteration in range(self.iterations):
            generated = _ANSWER_TAG.sub(" ", steps[-1].response) if steps else ""
            found = await self.retriever.retrieve(as_query(f"{question.question} {generated}"), self.top_k)
            read |= {each.id: each for each in found if each.id not in read}
            prompt = render_baseline(prompts, self.name, question.question, found)
            # the same passages make the same prompt, whose next draw must be another one
            step, answer = await answered(self.caller, question, prompt, found, sample=iteration)
            steps.append(step)
        return Attempt(answer, tuple(steps), self.iterations, tuple(read.values()))
