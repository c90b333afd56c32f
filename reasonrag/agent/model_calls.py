"""Asking a model, and judges in particular: which draw a reply is, what it has cost, and one more try to be read.

Decides seeds and the repair of judgements. Knows neither what is asked nor what becomes of it.
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

T = TypeVar("T")


@dataclass(slots=True)
class Spending:
    """What the answers used so far have cost."""

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
            cached_tokens=self.tokens.cached,
            repairs=self.repairs,
            judgements=self.judgements,
            bounded_requests=self.bounded_requests,
            cost_usd=None if price is None else round(self.tokens.cost(price), 8),
        )


@dataclass(frozen=True, slots=True)
class Judgement(Generic[T]):
    """What a judge said; `value` is None where neither its reply nor the repair could be read, `unreadable` then what
    it said last."""

    value: T | None
    calls: int
    unreadable: str | None = None


@dataclass(frozen=True)
class Asker:
    """A model, how it is sampled, and what it has been asked so far.

    priority: of its requests where they wait for each other; smaller goes first.
    """

    model: ChatModel
    prompts: Prompts
    sampling: Sampling
    seed: int
    priority: int = 0
    spending: Spending = field(default_factory=Spending)

    async def complete(
        self,
        question_id: str,
        messages: Sequence[Message],
        samples: Sequence[int],
        stop: tuple[str, ...],
        sampling: Sampling | None = None,
    ) -> Sequence[Completion]:
        """A completion per sample number, asked for in one request. Raises ModelError."""
        request = ChatRequest(
            messages=tuple(messages),
            sampling=(sampling or self.sampling).model_copy(update={"stop": stop}),
            samples=tuple(samples),
            seeds=tuple(sample_seed(self.seed, question_id, messages, each) for each in samples),
            priority=self.priority,
            question_id=question_id,
        )
        completions = await self.model.complete(request)
        self.spending.add(completions)
        return completions

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
        """What a judge says inside a tag; asked once more where it cannot be read. Raises ModelError."""
        [completion] = await self.complete(question_id, prompt, [sample], (f"</{tag}>",))
        value, calls = read(completion), 1
        if value is None and completion.finish_reason != "content_filter":  # asking that again would not help
            detail = f"expected <{tag}>..</{tag}> with {wanted}"
            again = render_repair(self.prompts, prompt, reply=completion.text, detail=detail)
            self.spending.repairs += 1
            [completion] = await self.complete(question_id, again, [sample], (f"</{tag}>",))
            value, calls = read(completion), 2
        return Judgement(value, calls, plain_text(completion.text) if value is None else None)
