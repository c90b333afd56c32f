"""What the baselines share: a reply whose tags are read, repaired as the agent's replies are, and its record as a step.

They use the same model, sampling and retriever as the agent. A reply that cannot be read, even after its repair turn,
gives no answer, with a cause. Knows no method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.agent.model_calls import ModelCaller, ReadReply, RepairTurn
from reasonrag.agent.parsing import ParseError, TaggedReply, parse_tagged
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.chat import Completion
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.retrieval.retriever import QUERY_BYTES

Tagged: TypeAlias = ReadReply[TaggedReply]
Check: TypeAlias = Callable[[TaggedReply], TaggedReply | ParseError]
"""What else a reply must be than the content of a tag."""


async def asked(
    caller: ModelCaller,
    question: Question,
    messages: tuple[Message, ...],
    tags: tuple[str, ...],
    *,
    sample: int = 0,
    check: Check = lambda reply: reply,
    repair_turn: RepairTurn | None = None,
) -> Tagged:
    """A reply with one of the tags, or why there is none. Raises ModelError."""

    def parse(said: Completion) -> TaggedReply | ParseError:
        found = parse_tagged(plain_text(said.text), tags=tags, ending=ending_of(said))
        return found if isinstance(found, ParseError) else check(found)

    request = caller.request(question.id, messages, [sample], tuple(f"</{tag}>" for tag in tags))
    [completion] = await caller.complete(request)
    return await caller.read(request, completion, parse, sample=sample, repair_turn=repair_turn)


async def answered(
    caller: ModelCaller,
    question: Question,
    messages: tuple[Message, ...],
    passages: Iterable[Passage] = (),
    *,
    sample: int = 0,
) -> tuple[PredictedStep, str | None]:
    """A reply that must answer, and the answer. passages: that it was shown. Raises ModelError."""
    reply = await asked(caller, question, messages, ("answer",), sample=sample)
    step = step_of("answer", reply, passages)
    return step, step.content


def step_of(action: str, reply: Tagged, passages: Iterable[Passage] = ()) -> PredictedStep:
    """The record of a reply. passages: that it was shown."""
    found = reply.content
    known = PredictedStep(
        action=action,
        response=plain_text(reply.completion.text),
        reasoning=plain_text(reply.completion.reasoning),
        passages=[each.reference() for each in passages],
        repaired=reply.repaired,
    )
    if isinstance(found, ParseError):
        return known.model_copy(update={"parse_error": found.cause})
    return known.model_copy(update={"response": found.response, "content": found.content})


def as_query(text: str) -> str:
    """The text, cut to the maximum query length."""
    return text.strip().encode()[:QUERY_BYTES].decode("utf-8", "ignore")
