"""A judge of final answers: a model that sees question, golden answers and answer, and says how right it is.

Decides what it sees: the reply that gave the answer and nothing of the way to it, so that methods are judged alike; its
prompt is `answer.txt`.
Its answers are journaled and priced like those of the evaluated model. That a judge is right is nobody's claim.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from reasonrag.agent.from_settings import Policy, owned
from reasonrag.agent.model_calls import Asker, Judgement
from reasonrag.agent.parsing import parse_score
from reasonrag.agent.prompting import render_answer
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint import JUDGE_KEY_VARIABLE, KEY_VARIABLE, EndpointModel
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import OfflineTeacher
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


def judge_policy(settings: EvaluateSettings, chat_model: ChatModel | None) -> Policy | None:
    """The likeliest judgement is wanted, so it is asked at temperature 0; None where no judge is."""
    name = chat_model.name if chat_model else settings.judge
    if name is None:
        return None
    price = find_price(name, tokens_in=settings.judge_price_in, tokens_out=settings.judge_price_out)
    return Policy(name, price, Sampling(temperature=0.0, top_p=1.0, max_tokens=settings.max_reply_tokens))


async def open_judge(name: str, settings: EvaluateSettings, opened: AsyncExitStack) -> ChatModel:
    """At an address of its own, or at the evaluated model's; each address gets its own key only."""
    own = bool(settings.judge_base_url)
    if name == OFFLINE and not own:
        return await owned(opened, OfflineTeacher())
    model = EndpointModel(
        name,
        base_urls=settings.judge_base_url or settings.base_url,
        concurrency=settings.concurrency,
        rpm=None if own else settings.rpm,
        tpm=None if own else settings.tpm,
        timeout=settings.timeout,
        flags="--judge-" if own else "--",
        key_variable=JUDGE_KEY_VARIABLE if own else KEY_VARIABLE,
        patience=settings.patience,
    )
    return await owned(opened, model)
