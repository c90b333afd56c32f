"""A critic's server as a `ChatModel`: its reply to a state and a step is one number, the raw score, as text.

Decides how a score is asked for: at vLLM's `/pooling`, as a conversation that the critic's own chat template renders,
and without the activation that vLLM applies by default. Checks on a fixed conversation that the server computes what
the training did. The server is ours and on this machine, so a failed request is not tried again. Does not know what
scores are used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from preference import Message
from reasonrag.errors import InputError, ModelError
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.address import clean
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.endpoint.http_client import BadAnswerError, Connection, score_of
from reasonrag.llm.endpoint.scheduler import RequestScheduler
from reasonrag.llm.endpoint.trouble import error_cause, error_message

SCORING: Final = Sampling(temperature=0, top_p=1, max_tokens=1)
TRIAL: Final = (
    Message(role="system", content="Take the next step."),
    Message(role="user", content="Question: Which river flows through the town?"),
    Message(role="assistant", content="I need to search.\n<query>river that flows through the town</query>"),
)
"""The conversation whose score a critic's folder holds."""
TOLERANCE: Final = 0.25
"""Largest difference of that score: room for bfloat16, an estimate."""


class ScoreTrial(NamedTuple):
    """What a critic gave for `TRIAL` when it was trained, and the tokens in which it read it; None: not known."""

    score: float | None = None
    tokens: int | None = None


class ScoreEndpoint:
    """Raw scores over HTTP. name: what the server calls the critic."""

    def __init__(self, name: str, base_url: str, limits: Limits, trained: ScoreTrial) -> None:
        self.name, self._trained = name, trained
        self._connection = Connection(base_url, "none", limits.timeout)
        self._scheduler = RequestScheduler([limits.pace()], most=limits.concurrency)
        self.stop = self._scheduler.stop

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        from openai import APIError

        asked = {
            "model": self.name,
            "messages": request.wire_messages(),
            "task": "classify",
            "use_activation": False,
            "add_generation_prompt": False,
        }
        try:
            async with self._scheduler.slot(0):
                answer = await self._connection.post(asked, "/pooling")
            return [score_of(answer.content, (), prompt_size=request.size)]
        except (APIError, BadAnswerError) as error:
            said = f"the server of {self.name} gave no score: {clean(error_message(error))}"
            raise ModelError(said, cause=error_cause(error)) from error

    async def check(self) -> None:
        """Raises InputError for a server that reads or scores `TRIAL` otherwise than the training did."""
        try:
            [reply] = await self.complete(ChatRequest(messages=TRIAL, sampling=SCORING, samples=(0,), seeds=(0,)))
        except ModelError as error:
            raise InputError(f"{self.name} serves no critic: {error}") from error
        score, (expected, tokens) = float(reply.text), self._trained
        asks = "is it the same critic, with its own chat template and end token?"
        if tokens not in (None, reply.prompt_tokens) and not reply.tokens_bounded:
            read = f"{self.name} reads the trial step as {reply.prompt_tokens} tokens"
            raise InputError(f"{read}, the training as {tokens}: {asks}")
        if expected is not None and abs(score - expected) > TOLERANCE:
            scored = f"{self.name} scores the trial step {score:.3f}"
            raise InputError(f"{scored}, and did so by {expected:.3f} when it was trained: {asks}")

    async def close(self) -> None:
        await self._connection.close()
