"""Model calls of an agent and its judges: seeds, usage, and the repair of unreadable judgements.

Decides seeds and the repair of judgements. Does not know what is asked or how replies are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from preference import Message, Usage
from preference.export.sanitize import plain_text
from reasonrag.agent.prompting import Prompts, render_repair
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling, sample_seed
from reasonrag.llm.prices import Price
from reasonrag.llm.reasoning import is_only_reasoning, without_reasoning

T = TypeVar("T")


@dataclass(slots=True)
class Spending:
    """Usage of the completions used so far."""

    tokens: Tokens = field(default_factory=Tokens)
    repairs: int = 0
    judgements: int = 0
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
            reasoning_tokens=self.tokens.reasoning,
            cached_tokens=self.tokens.cached,
            repairs=self.repairs,
            judgements=self.judgements,
            bounded_requests=self.bounded_requests,
            cost_usd=None if price is None else round(self.tokens.cost(price), 8),
        )


@dataclass(frozen=True, slots=True)
class Judgement(Generic[T]):
    """A judge's verdict. `value` is None if neither its reply nor the repair was readable; `unreadable` is then its
    last reply, and `cause` is `reasoning_cut` if that was nothing but reasoning."""

    value: T | None
    calls: int
    unreadable: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class ModelCaller:
    """Sends requests to a model with fixed sampling and seed, and records their usage.

    priority: of its requests among waiting ones; smaller first.
    think_in_format: whether the prompts ask for think tags, which then are part of a reply.
    """

    model: ChatModel
    prompts: Prompts
    sampling: Sampling
    seed: int
    priority: int = 0
    spending: Spending = field(default_factory=Spending)
    think_in_format: bool = False

    def request(
        self,
        question_id: str,
        messages: Sequence[Message],
        samples: Sequence[int],
        stop: tuple[str, ...],
        sampling: Sampling | None = None,
    ) -> ChatRequest:
        return ChatRequest(
            messages=tuple(messages),
            sampling=(sampling or self.sampling).model_copy(update={"stop": stop}),
            samples=tuple(samples),
            seeds=tuple(sample_seed(self.seed, question_id, messages, each) for each in samples),
            priority=self.priority,
            question_id=question_id,
            think_in_format=self.think_in_format,
        )

    async def complete(
        self,
        question_id: str,
        messages: Sequence[Message],
        samples: Sequence[int],
        stop: tuple[str, ...],
        sampling: Sampling | None = None,
    ) -> Sequence[Completion]:
        """A completion per sample number, in one request, its reasoning apart from its text. Raises ModelError."""
        request = self.request(question_id, messages, samples, stop, sampling)
        completions = await self.model.complete(request)
        self.spending.add(completions)
        return completions if self.think_in_format else list(map(without_reasoning, completions))

    async def judgement(
        self,
        question_id: str,
        prompt: Sequence[Message],
        sample: int,
        *,
        tag: str,
        wanted: str,
        read: Callable[[Completion], T | None],
    ) -> Judgement[T]:
        """A judge's verdict inside a tag; one repair turn if it is unreadable. Raises ModelError."""
        [completion] = await self.complete(question_id, prompt, [sample], (f"</{tag}>",))
        value, calls = read(completion), 1
        hopeless = completion.finish_reason == "content_filter" or is_only_reasoning(completion)
        if value is None and not hopeless:  # a retry would be withheld, or cut, again
            detail = f"expected <{tag}>..</{tag}> with {wanted}"
            again = render_repair(self.prompts, prompt, reply=completion.text, detail=detail)
            self.spending.repairs += 1
            [completion] = await self.complete(question_id, again, [sample], (f"</{tag}>",))
            value, calls = read(completion), 2
        if value is not None:
            return Judgement(value, calls)
        cause = "reasoning_cut" if is_only_reasoning(completion) else ""
        return Judgement(None, calls, plain_text(completion.text), cause)
