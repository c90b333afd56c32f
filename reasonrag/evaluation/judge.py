"""A judge of final answers: a model that sees question, golden answers and answer, and says how right it is.

Decides what it sees: the reply that gave the answer and nothing of the way to it, so that methods are judged alike; its
prompt is `answer.txt`.
Its answers are journaled and priced like those of the evaluated model. That a judge is right is nobody's claim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reasonrag.agent.model_calls import Asker, Judgement
from reasonrag.agent.parsing import parse_score
from reasonrag.agent.prompting import render_answer
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint import JUDGE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import find_price


@dataclass(frozen=True)
class Judge:
    """Scores answers by the model of `asker`."""

    asker: Asker

    async def score(self, question: Question, attempt: Attempt) -> Judgement[float]:
        """Of an attempt with an answer, in [0, 1]. Raises ModelError."""
        prompt = render_answer(
            self.asker.prompts,
            question=question.question,
            thoughts=(attempt.steps[-1].response,),
            answer=attempt.answer or "",
            golden_answers=question.golden_answers,
        )
        return await self.asker.judgement(
            question.id,
            prompt,
            0,
            tag="score",
            wanted="a number between 0 and 100",
            read=lambda reply: parse_score(reply.text, reply.finish_reason),
        )


def judge_spec(judged: ModelSpec, settings: EvaluateSettings, chat_model: ChatModel | None) -> ModelSpec | None:
    """The judge beside the model that is judged; None where there is none.

    At an address of its own, or at that model's; each address gets its own key only. The likeliest judgement is wanted,
    so it is asked at temperature 0.
    """
    name = chat_model.name if chat_model else settings.judge
    if name is None:
        return None
    own = bool(settings.judge_base_url)
    return replace(
        judged.elsewhere(settings.judge_base_url, key_variable=JUDGE_KEY_VARIABLE),
        name=name,
        sampling=judged.sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0}),
        price=find_price(name, tokens_in=settings.judge_price_in, tokens_out=settings.judge_price_out),
        flags="--judge-" if own else "--",
        recorded_as=f"{name} (judge)",
        in_process=name == OFFLINE and not own,
    )
