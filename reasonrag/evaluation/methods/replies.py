"""What the baselines share: a reply whose tags are read, and its record as a step.

They use the same model, sampling and retriever as the agent. A reply that cannot be parsed gives no answer, with a
cause. Knows no method.
"""

from __future__ import annotations

from preference import Message
from preference.export.sanitize import plain_text
from preference.records import PassageRef
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import ParseError, TaggedReply, parse_tagged
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.chat import Completion


async def answered(
    caller: ModelCaller,
    question: Question,
    prompt: tuple[Message, ...],
    passages: list[Passage] | None = None,
    *,
    sample: int = 0,
) -> tuple[PredictedStep, str | None]:
    """A reply that must answer, and the answer."""
    reply, parsed = await asked(caller, question, prompt, ("answer",), sample=sample)
    answer = parsed.content if isinstance(parsed, TaggedReply) else None
    return step_of("answer", reply, parsed, tuple(passages or ())), answer


async def asked(
    caller: ModelCaller, question: Question, prompt: tuple[Message, ...], tags: tuple[str, ...], *, sample: int = 0
) -> tuple[Completion, TaggedReply | ParseError]:
    stop = tuple(f"</{tag}>" for tag in tags)
    [completion] = await caller.complete(question.id, prompt, [sample], stop)
    plain = {"text": plain_text(completion.text), "reasoning": plain_text(completion.reasoning)}
    reply = completion.model_copy(update=plain)
    return reply, parse_tagged(reply.text, tags=tags, finish_reason=reply.finish_reason)


def step_of(
    action: str, reply: Completion, parsed: TaggedReply | ParseError, passages: tuple[Passage, ...]
) -> PredictedStep:
    shown = [PassageRef(id=each.id, title=each.title, score=each.score) for each in passages]
    known = PredictedStep(action=action, response=reply.text, reasoning=reply.reasoning, passages=shown)
    if isinstance(parsed, ParseError):
        return known.model_copy(update={"parse_error": parsed.cause})
    return known.model_copy(update={"response": parsed.response, "content": parsed.content})
