"""Adaptive-RAG, prompted: one reply says how much a question needs, and another method answers it (arXiv 2403.14403).

Decides which one; knows no golden answer and no score. Departures from the publication: there a T5 model, trained on
which method answered which question, chooses, here the evaluated model itself is asked, as the name tells; the methods
behind it depart from their own publications as they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import ROUTES, BaselinePrompts, render_baseline
from reasonrag.evaluation.methods.choice import BaselineName
from reasonrag.evaluation.methods.method import Attempt, Method
from reasonrag.evaluation.methods.replies import asked, step_of


@dataclass(frozen=True)
class AdaptiveRag:
    """methods: by route. A route that cannot be read ends the attempt without an answer."""

    caller: ModelCaller
    prompts: BaselinePrompts
    methods: Mapping[str, Method]
    name: BaselineName = "adaptive-rag-prompted"

    async def answer(self, question: Question) -> Attempt:
        messages = render_baseline(self.prompts, self.name, question.question)
        reply = await asked(self.caller, question, messages, ("route",), check=_known)
        step = step_of("route", reply)
        if isinstance(reply.content, ParseError):
            return Attempt(None, (step,))
        attempt = await self.methods[reply.content.content.casefold()].answer(question)
        return replace(attempt, steps=(step, *attempt.steps))


def _known(reply: TaggedReply) -> TaggedReply | ParseError:
    if reply.content.casefold() in ROUTES:
        return reply
    return ParseError("wrong_tag", f"expected {', '.join(ROUTES)} inside <route>; found {reply.content!r}")
