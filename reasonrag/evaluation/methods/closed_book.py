"""The baselines without retrieval: the answer at once, or after reasoning step by step. Both take one reply.

Decides what each asks; knows no golden answer and no score.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasonrag.agent.model_calls import ModelCaller
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import BaselinePrompts, in_style, render_baseline
from reasonrag.evaluation.methods.choice import BaselineName
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.replies import answered


@dataclass(frozen=True)
class ClosedBook:
    """The question alone. name: `direct`, or `cot` (reasoning step by step before the answer)."""

    name: BaselineName
    caller: ModelCaller
    prompts: BaselinePrompts

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        prompt = render_baseline(prompts, self.name, question.question)
        step, answer = await answered(self.caller, question, prompt)
        return Attempt(answer, (step,))
