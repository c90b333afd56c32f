"""The agent that ReasonRAG defines: think, read, conclude; how a state becomes a prompt and a reply becomes a step.

Decides the turns, the step budget, the repair turn, what a failed step is and how answers are scored. Talks to one
`ChatModel` and one `Retriever`; knows nothing of trees, files or other questions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from preference import (
    ActionType,
    AgentAction,
    Message,
    ParseFailure,
    PassageRef,
    Usage,
    exact_match,
    f1_score,
)
from reasonrag.chat import ChatModel, ChatRequest, Completion, Sampling, sample_seed
from reasonrag.concurrency import together
from reasonrag.corpora import Passage
from reasonrag.grounding import is_grounded
from reasonrag.ledger import Tokens
from reasonrag.parsing import ParsedReply, ParseError, parse_reply, stop_strings
from reasonrag.prices import Price
from reasonrag.prompting import Prompts, plain_text, render_judgement, render_prompt, render_repair
from reasonrag.questions import Question
from reasonrag.retrieval import Retriever

_SCORE = re.compile(r"<score>\s*(\d{1,3}(?:\.\d+)?)\s*(?:/\s*100\s*)?(?:</score>|$)")


@dataclass(frozen=True, slots=True)
class State:
    """What the agent has seen. `passages`: what this turn reads; `read`: all passages shown so far, these included."""

    question: Question
    action: AgentAction
    layer: int
    thoughts: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    read: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One step taken in a state, parsed or failed, scored if it ends.

    sampled_with: the messages really sent, if the reply came from the repair turn.
    """

    state: State
    prompt: tuple[Message, ...]
    response: str
    action_type: ActionType | None
    content: str | None
    terminal: bool
    parse_error: ParseFailure | None = None
    repaired: bool = False
    sampled_with: tuple[Message, ...] | None = None
    f1: float | None = None
    em: float | None = None
    grounded: bool | None = None

    @property
    def calls(self) -> int:
        """Replies used: one, or two with the repair turn."""
        repair_failed = self.parse_error is not None and self.parse_error.repair is not None
        return 2 if self.repaired or repair_failed else 1

    @property
    def passage_refs(self) -> list[PassageRef] | None:
        if self.state.action != "read":
            return None
        return [PassageRef(id=p.id, title=p.title, score=p.score) for p in self.state.passages]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's score in [0, 1]; 0 where neither its reply nor the repair could be read, with what it said then."""

    score: float
    calls: int
    unreadable: str | None = None


@dataclass(slots=True)
class Spending:
    """What the answers used so far have cost."""

    tokens: Tokens = field(default_factory=Tokens)
    repairs: int = 0
    bounded_requests: int = 0

    def add(self, completions: Sequence[Completion]) -> None:
        self.tokens += Tokens.of(completions)
        self.bounded_requests += sum(each.tokens_bounded for each in completions)

    def as_usage(self, price: Price | None) -> Usage:
        return Usage(
            calls=self.tokens.calls,
            requests=self.tokens.requests,
            prompt_tokens=self.tokens.prompt,
            completion_tokens=self.tokens.completion,
            cached_tokens=self.tokens.cached,
            repairs=self.repairs,
            bounded_requests=self.bounded_requests,
            cost_usd=None if price is None else round(self.tokens.cost(price), 8),
        )


@dataclass(frozen=True)
class Agent:
    """The policy and what it has spent: model, retriever, prompts and sampling. Knows no step after it was taken.

    priority: of its requests where they wait for each other; smaller goes first.
    """

    model: ChatModel
    retriever: Retriever
    prompts: Prompts
    sampling: Sampling
    top_k: int
    max_steps: int
    seed: int
    priority: int = 0
    spending: Spending = field(default_factory=Spending)

    def start(self, question: Question) -> State:
        return State(question, "conclude" if self.max_steps == 1 else "think", layer=0)

    async def next_state(self, step: AgentStep) -> State:
        """The state a step leads to; a query is searched here. Raises RetrievalError."""
        before = step.state
        layer = before.layer + 1
        thoughts = (*before.thoughts, step.response)
        if layer == self.max_steps - 1:
            return State(before.question, "conclude", layer, thoughts, read=before.read)
        if step.action_type == "query":
            found = tuple(await self.retriever.retrieve(step.content or "", self.top_k))
            known = {passage.id for passage in before.read}
            read = before.read + tuple(each for each in found if each.id not in known)
            return State(before.question, "read", layer, thoughts, found, read)
        return State(before.question, "think", layer, thoughts, read=before.read)

    async def sample(self, state: State, samples: Sequence[int]) -> list[AgentStep]:
        """One step per sample number, all asked for in one request. Raises ModelError."""
        prompt = render_prompt(
            self.prompts,
            state.action,
            question=state.question.question,
            thoughts=state.thoughts,
            passages=state.passages,
        )
        completions = await self._complete(state.question, prompt, state.action, samples)
        return await together(
            *(
                self._as_step(state, prompt, completion, sample)
                for completion, sample in zip(completions, samples, strict=True)
            )
        )

    async def continue_from(self, state: State, samples: Sequence[int]) -> list[list[AgentStep]]:
        """One real continuation to an answer per sample number; their first steps share a request."""
        firsts = await self.sample(state, samples)
        return await together(*(self._finish(first, sample) for first, sample in zip(firsts, samples, strict=True)))

    async def judge(self, question: Question, thoughts: Sequence[str], sample: int) -> Judgement:
        """A judge's view of some reasoning; it sees the golden answers. Only recipe `released` asks for it."""
        prompt = render_judgement(
            self.prompts,
            question=question.question,
            golden_answers=question.golden_answers,
            thoughts=thoughts,
        )
        [completion] = await self._complete(question, prompt, None, [sample])
        score = _read_score(completion.text)
        if score is not None:
            return Judgement(score, calls=1)
        detail = "expected <score>number</score> with a number between 0 and 100"
        again = render_repair(self.prompts, prompt, reply=completion.text, detail=detail)
        self.spending.repairs += 1
        [completion] = await self._complete(question, again, None, [sample])
        score = _read_score(completion.text)
        if score is not None:
            return Judgement(score, calls=2)
        return Judgement(0.0, calls=2, unreadable=plain_text(completion.text))

    async def _finish(self, step: AgentStep, sample: int) -> list[AgentStep]:
        path = [step]
        while not path[-1].terminal:
            path += await self.sample(await self.next_state(path[-1]), [sample])
        return path

    async def _complete(
        self,
        question: Question,
        messages: Sequence[Message],
        action: AgentAction | None,
        samples: Sequence[int],
    ) -> Sequence[Completion]:
        stop = stop_strings(action) if action else ("</score>",)
        request = ChatRequest(
            messages=tuple(messages),
            sampling=self.sampling.model_copy(update={"stop": stop}),
            samples=tuple(samples),
            seeds=tuple(sample_seed(self.seed, question.id, messages, each) for each in samples),
            priority=self.priority,
            question_id=question.id,
        )
        completions = await self.model.complete(request)
        self.spending.add(completions)
        return completions

    async def _as_step(
        self, state: State, prompt: tuple[Message, ...], completion: Completion, sample: int
    ) -> AgentStep:
        """The step a reply takes; a reply that takes none gets one repair turn, then is a failed step."""
        reply = plain_text(completion.text)
        parsed = parse_reply(reply, action=state.action, finish_reason=completion.finish_reason)
        if isinstance(parsed, ParsedReply):
            return self._parsed_step(state, prompt, parsed)
        if parsed.cause == "withheld":  # asking the filter again would not help
            return _failed_step(state, prompt, reply, parsed, None)
        messages = render_repair(self.prompts, prompt, reply=reply, detail=parsed.detail)
        self.spending.repairs += 1
        [repair] = await self._complete(state.question, messages, state.action, [sample])
        second_reply = plain_text(repair.text)
        repaired = parse_reply(second_reply, action=state.action, finish_reason=repair.finish_reason)
        if isinstance(repaired, ParsedReply):
            return self._parsed_step(state, prompt, repaired, sampled_with=messages)
        return _failed_step(state, prompt, reply, parsed, second_reply)

    def _parsed_step(
        self,
        state: State,
        prompt: tuple[Message, ...],
        parsed: ParsedReply,
        sampled_with: tuple[Message, ...] | None = None,
    ) -> AgentStep:
        ends = parsed.action_type == "answer"
        golden_answers = state.question.golden_answers
        return AgentStep(
            state=state,
            prompt=prompt,
            response=parsed.response,
            action_type=parsed.action_type,
            content=parsed.content,
            terminal=ends,
            repaired=sampled_with is not None,
            sampled_with=sampled_with,
            f1=f1_score(parsed.content, golden_answers) if ends else None,
            em=exact_match(parsed.content, golden_answers) if ends else None,
            grounded=is_grounded(parsed.action_type, parsed.content, state.read),
        )


def _read_score(text: str) -> float | None:
    """The last score of a judgement as a share of 100."""
    scores = [float(found) / 100 for found in _SCORE.findall(text)]
    return scores[-1] if scores and 0 <= scores[-1] <= 1 else None


def _failed_step(
    state: State, prompt: tuple[Message, ...], reply: str, error: ParseError, repair: str | None
) -> AgentStep:
    """A reply that is no step: terminal, worth nothing, kept with its text and cause."""
    return AgentStep(
        state=state,
        prompt=prompt,
        response=reply,
        action_type=None,
        content=None,
        terminal=True,
        parse_error=ParseFailure(cause=error.cause, detail=error.detail, repair=repair),
        f1=0.0,
        em=0.0,
    )
