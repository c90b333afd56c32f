"""Model calls of an agent, of the baselines and of their judges: seeds, usage, and the repair of unreadable replies.

Decides seeds, and when a reply gets a repair turn. Does not know what is asked or how replies are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from preference import Message, Usage
from preference.export.sanitize import plain_text
from reasonrag.agent.parsing import (
    NOT_REPAIRED,
    NOTHING_SAID,
    ParsedReply,
    ParseError,
    TaggedReply,
    is_copied,
    parse_score,
)
from reasonrag.agent.prompting import Prompts, render_repair
from reasonrag.errors import ModelError
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling, sample_seed
from reasonrag.llm.endpoint.endings import Ending, ending_of
from reasonrag.llm.prices import Price
from reasonrag.llm.reasoning import as_read, is_only_reasoning

T = TypeVar("T")
CUT_REPLY_SHOWN = 120
"""Characters of a cut reply in its repair turn."""


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
            **self.tokens._asdict(),
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


class ReadReply(NamedTuple, Generic[T]):
    """A reply, read; where it needed the repair turn and that helped, the second one.

    content: or why the first reply could not be read. messages: what was sent for `completion`. unrepaired: the second
    reply, where that could not be read either.
    """

    completion: Completion
    content: T | ParseError
    messages: tuple[Message, ...]
    repaired: bool = False
    unrepaired: Completion | None = None


RepairTurn = Callable[[str, ParseError], tuple[Message, ...]]
"""The messages of a repair turn, for the text of a reply and why it could not be read."""


@dataclass(frozen=True)
class ModelCaller:
    """Sends requests to a model with fixed sampling and seed, and records their usage.

    repair: whether an unreadable reply gets a repair turn.
    think_in_format: whether the prompts ask for think tags, which then are part of a reply.
    """

    model: ChatModel
    prompts: Prompts
    sampling: Sampling
    seed: int
    spending: Spending = field(default_factory=Spending)
    think_in_format: bool = False
    repair: bool = True
    _until: dict[tuple[str, ...], Sampling] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The sampling by stop strings, which a question has few of: made again for each request, it costs 1 % of all."""

    def request(
        self,
        question_id: str,
        messages: Sequence[Message],
        samples: Sequence[int],
        stop: tuple[str, ...],
        sampling: Sampling | None = None,
        *,
        unseen: Sequence[str] = (),
    ) -> ChatRequest:
        """unseen: the thoughts that led here, where the messages do not show them: states that differ in these alone
        have draws of their own, as no draw is asked for twice."""
        led = [Message(role="assistant", content=each) for each in unseen]
        if sampling is None and stop not in self._until:
            self._until[stop] = self.sampling.model_copy(update={"stop": stop})
        return ChatRequest(
            messages=tuple(messages),
            sampling=sampling.model_copy(update={"stop": stop}) if sampling else self._until[stop],
            samples=tuple(samples),
            seeds=tuple(sample_seed(self.seed, question_id, [*messages, *led], each) for each in samples),
            question_id=question_id,
            think_in_format=self.think_in_format,
        )

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        """A completion per draw, its reasoning apart from its text. Raises ModelError."""
        completions = await self.model.complete(request)
        self.spending.add(completions)
        return completions if self.think_in_format else [as_read(request, each) for each in completions]

    async def read(
        self,
        asked: ChatRequest,
        completion: Completion,
        parse: Callable[[Completion], T | ParseError],
        *,
        sample: int,
        repair_turn: RepairTurn | None = None,
    ) -> ReadReply[T]:
        """Read the reply to one draw of a request; one repair turn if it is unreadable. Raises ModelError.

        repair_turn: instead of the usual one.
        """
        messages, content = asked.messages, first_reading(asked, completion, parse)
        if not (isinstance(content, ParseError) and self.repair and content.cause not in NOT_REPAIRED):
            return ReadReply(completion, content, messages)
        again = (
            repair_turn(completion.text, content)
            if repair_turn
            else render_repair(self.prompts, messages, reply=_shown(completion.text, content), detail=content.detail)
        )
        self.spending.repairs += 1
        try:
            second_turn = self.request(asked.question_id, again, [sample], asked.sampling.stop, asked.sampling)
            [second] = await self.complete(second_turn)
        except ModelError as error:
            if not error.of_prompt:
                raise
            return ReadReply(completion, content, messages)  # the endpoint takes no such turn
        repaired = _unless_copied(parse(second), [*_instructions(asked), again[-1].content])
        if isinstance(repaired, ParseError):
            return ReadReply(completion, content, messages, unrepaired=second)
        return ReadReply(second, repaired, again, repaired=True)

    async def score(self, question_id: str, prompt: Sequence[Message], sample: int) -> Judgement[float]:
        """A judge's score in [0, 1] for the content of a prompt. Raises ModelError."""
        return await self.judgement(
            question_id,
            prompt,
            sample,
            tag="score",
            wanted="a number between 0 and 100",
            read=parse_score,
        )

    async def judgement(
        self,
        question_id: str,
        prompt: Sequence[Message],
        sample: int,
        *,
        tag: str,
        wanted: str,
        read: Callable[[str, Ending], T | None],
    ) -> Judgement[T]:
        """A judge's verdict in a tag, with one repair turn. read: of a reply's text and ending. Raises ModelError."""

        def parse(completion: Completion) -> T | ParseError:
            ending = ending_of(completion)
            value = read(completion.text, ending)
            if value is not None:
                return value
            cause, _ = NOTHING_SAID.get(ending, ("no_tag", ""))
            cause = "reasoning_cut" if is_only_reasoning(completion) else cause
            return ParseError(cause, f"expected <{tag}>..</{tag}> with {wanted}")

        asked = self.request(question_id, prompt, [sample], (f"</{tag}>",))
        [completion] = await self.complete(asked)
        found = await self.read(asked, completion, parse, sample=sample)
        calls = 2 if found.repaired or found.unrepaired else 1
        if not isinstance(found.content, ParseError):
            return Judgement(found.content, calls)
        last = found.unrepaired or completion
        return Judgement(None, calls, plain_text(last.text), "reasoning_cut" if is_only_reasoning(last) else "")


def first_reading(
    asked: ChatRequest, completion: Completion, parse: Callable[[Completion], T | ParseError]
) -> T | ParseError:
    """As `ModelCaller.read` reads a reply before any repair turn."""
    content = _unless_copied(parse(completion), _instructions(asked))
    if isinstance(content, ParseError) and completion.said:
        return ParseError(content.cause, f"{content.detail} ({completion.said})")
    return content


def _instructions(asked: ChatRequest) -> list[str]:
    return [each.content for each in asked.messages if each.role == "system"]


def _shown(reply: str, error: ParseError) -> str:
    """What the usual repair turn shows of an unreadable step: of one that was cut only the beginning. A small model
    that is shown all of it says it again, and is cut again (benchmarks/RESULTS.md has the figures)."""
    if error.cause not in ("cut_off", "loop") or len(reply) <= CUT_REPLY_SHOWN:
        return reply
    return f"{reply[:CUT_REPLY_SHOWN]} [...]"


def _unless_copied(content: T | ParseError, instructions: Sequence[str]) -> T | ParseError:
    if isinstance(content, ParsedReply | TaggedReply) and is_copied(content.content, instructions):
        return ParseError("copied", "the text inside the tag is that of the instructions; put your own there")
    return content
