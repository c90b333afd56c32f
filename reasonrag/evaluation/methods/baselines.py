"""The baselines: no retrieval, standard RAG, Iter-RetGen, and Search-R1's loop.

They use the same model, sampling and retriever as the agent. A reply that cannot be parsed gives no answer, with a
cause; only the agent has a repair turn. Decides what each method asks and when it stops; knows no golden answer and no
score. The instructions are our own wording (`baseline_prompts`). Departures from the publications:

1. Iter-RetGen (arXiv 2305.15294) shows demonstrations; here the instruction alone says what is wanted.
2. Search-R1 (arXiv 2503.09516) continues one assistant turn that includes the passages found. Chat endpoints start a
   new turn with every request, so each reply is its own assistant turn, and the passages are the user turn after it:
   the model's words and the first user turn are where they were in training; what differs are the turn markers. To use
   its original instruction, put it into `--prompts DIR/baselines/search-r1.txt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from preference import Message
from preference.export.sanitize import plain_text
from preference.records import PassageRef
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import NOT_REPAIRED, ParseError, TaggedReply, parse_tagged
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import (
    BaselinePrompts,
    in_style,
    render_baseline,
    search_r1_found,
    search_r1_rethink,
    search_r1_start,
)
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.evaluation.settings import BaselineName
from reasonrag.llm.chat import Completion
from reasonrag.retrieval.retriever import QUERY_BYTES, Retriever

_ANSWER_TAG = re.compile(r"<\s*/?\s*answer\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class ClosedBook:
    """The question alone. name: `direct`, or `cot` (reasoning step by step before the answer)."""

    name: BaselineName
    caller: ModelCaller
    prompts: BaselinePrompts

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        prompt = render_baseline(prompts, self.name, question.question)
        step, answer = await _answered(self.caller, question, prompt)
        return Attempt(answer, (step,))


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
            generated = steps[-1].response if steps else ""
            found = await self.retriever.retrieve(_query(question.question, generated), self.top_k)
            read |= {each.id: each for each in found if each.id not in read}
            prompt = render_baseline(prompts, self.name, question.question, found)
            # the same passages make the same prompt, whose next draw must be another one
            step, answer = await _answered(self.caller, question, prompt, found, sample=iteration)
            steps.append(step)
        return Attempt(answer, tuple(steps), self.iterations, tuple(read.values()))


@dataclass(frozen=True)
class SearchR1:
    """Think, search, read, until there is an answer or the budget is spent (arXiv 2503.09516, algorithm 1).

    max_searches: the action budget. As in the paper, a reply that is neither a search nor an answer costs one action
    too, and the model is told so. The reply after the last action must answer.
    """

    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    max_searches: int
    name: BaselineName = "search-r1"

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        messages = search_r1_start(prompts, question.question)
        steps: list[PredictedStep] = []
        read: dict[str, Passage] = {}
        searches, shown = 0, tuple[Passage, ...]()
        for left in range(self.max_searches, -1, -1):
            reply, parsed = await _asked(self.caller, question, messages, ("search", "answer"))
            steps.append(_step("think", reply, parsed, shown))
            if isinstance(parsed, TaggedReply) and parsed.tag == "answer":
                return Attempt(parsed.content, tuple(steps), searches, tuple(read.values()))
            if left == 0:
                if isinstance(parsed, TaggedReply):
                    unfit = reply.model_copy(update={"text": parsed.response})
                    steps[-1] = _step("think", unfit, ParseError("wrong_tag", ""), shown)
                break
            if isinstance(parsed, TaggedReply):
                shown = tuple(await self.retriever.retrieve(parsed.content, self.top_k))
                searches += 1
                read |= {each.id: each for each in shown if each.id not in read}
                messages += search_r1_found(parsed.response, shown)
            elif parsed.cause in NOT_REPAIRED:
                break
            else:
                shown = ()
                messages += search_r1_rethink(prompts, reply.text)
        return Attempt(None, tuple(steps), searches, tuple(read.values()))


Baseline = ClosedBook | IterRetGen | SearchR1


def baseline(
    name: BaselineName,
    *,
    caller: ModelCaller,
    prompts: BaselinePrompts,
    retriever: Retriever,
    top_k: int,
    iterations: int,
    max_searches: int,
) -> Baseline:
    """The method of this name."""
    match name:
        case "direct" | "cot":
            return ClosedBook(name, caller, prompts)
        case "rag":
            return IterRetGen(name, caller, prompts, retriever, top_k, iterations=1)
        case "iter-retgen":
            return IterRetGen(name, caller, prompts, retriever, top_k, iterations)
        case "search-r1":
            return SearchR1(replace(caller, think_in_format=True), prompts, retriever, top_k, max_searches)


async def _answered(
    caller: ModelCaller,
    question: Question,
    prompt: tuple[Message, ...],
    passages: list[Passage] | None = None,
    *,
    sample: int = 0,
) -> tuple[PredictedStep, str | None]:
    """A reply that must answer, and the answer."""
    reply, parsed = await _asked(caller, question, prompt, ("answer",), sample=sample)
    answer = parsed.content if isinstance(parsed, TaggedReply) else None
    return _step("answer", reply, parsed, tuple(passages or ())), answer


async def _asked(
    caller: ModelCaller, question: Question, prompt: tuple[Message, ...], tags: tuple[str, ...], *, sample: int = 0
) -> tuple[Completion, TaggedReply | ParseError]:
    stop = tuple(f"</{tag}>" for tag in tags)
    [completion] = await caller.complete(question.id, prompt, [sample], stop)
    plain = {"text": plain_text(completion.text), "reasoning": plain_text(completion.reasoning)}
    reply = completion.model_copy(update=plain)
    return reply, parse_tagged(reply.text, tags=tags, finish_reason=reply.finish_reason)


def _step(
    action: str, reply: Completion, parsed: TaggedReply | ParseError, passages: tuple[Passage, ...]
) -> PredictedStep:
    shown = [PassageRef(id=each.id, title=each.title, score=each.score) for each in passages]
    known = PredictedStep(action=action, response=reply.text, reasoning=reply.reasoning, passages=shown)
    if isinstance(parsed, ParseError):
        return known.model_copy(update={"parse_error": parsed.cause})
    return known.model_copy(update={"response": parsed.response, "content": parsed.content})


def _query(question: str, generated: str) -> str:
    """The question and the last generation, cut to the maximum query length."""
    said = _ANSWER_TAG.sub(" ", generated)
    return f"{question} {said}".strip().encode()[:QUERY_BYTES].decode("utf-8", "ignore")
