"""The judge of final answers: a model that scores an answer, given the question and the golden answers.

Decides what it sees: the reply with the answer and none of the steps before, so that all methods are judged alike; its
prompt is `answer.txt`. Its replies are journaled and priced like those of the evaluated model. Whether the judge is
right is not measured here.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasonrag.agent.model_calls import Judgement, ModelCaller
from reasonrag.agent.prompting import render_answer
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt


@dataclass(frozen=True)
class Judge:
    """Scores answers by the model of `caller`."""

    caller: ModelCaller

    async def score(self, question: Question, attempt: Attempt) -> Judgement[float]:
        """Score an attempt that has an answer, in [0, 1]. Raises ModelError."""
        prompt = render_answer(
            self.caller.prompts,
            question=question.question,
            thoughts=(attempt.steps[-1].response,),
            answer=attempt.answer or "",
            golden_answers=question.golden_answers,
        )
        return await self.caller.score(question.id, prompt, 0)
