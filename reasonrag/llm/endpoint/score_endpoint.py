"""A served critic as a `ChatModel`: its reply to a state and a step is one number, the raw score, as text.

Decides how a score is asked for: at vLLM's `/pooling`, as a conversation that the critic's own chat template renders,
and without the activation that vLLM applies by default. Checks on a fixed
conversation that the server computes what the training did. Does not know what scores are used for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from preference import Message
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.endpoint.address import OneAddress
from reasonrag.llm.endpoint.endpoint import EndpointModel
from reasonrag.llm.endpoint.http_client import Connection, HttpAnswer, score_of
from reasonrag.web.client import shown_url

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


class ScoreEndpoint(EndpointModel):
    """Raw scores over HTTP. trained: see `ScoreTrial`."""

    trial_messages = TRIAL
    trained = ScoreTrial()
    _wrong = "serves no critic"
    _speaks = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._address = "the critic's address"

    async def send(self, connection: Connection, body: Mapping[str, Any], request: ChatRequest) -> HttpAnswer:
        asked = {
            "model": body["model"],
            "messages": request.wire_messages(),
            "task": "classify",
            "use_activation": False,
            "add_generation_prompt": False,
        }
        return await connection.post(asked, "/pooling")

    def read(self, answer: HttpAnswer, request: ChatRequest) -> list[Completion]:
        return [score_of(answer.content, self._secrets, prompt_size=request.size)]

    async def _check(self, endpoint: OneAddress, *, last_hope: bool) -> Completion | None:
        """Raises InputError also for a server that reads or scores `TRIAL` otherwise than the training did."""
        reply = await super()._check(endpoint, last_hope=last_hope)
        if reply and (difference := self._difference(reply)):
            raise InputError(f"{self.name} at {shown_url(endpoint.connection.base_url)} {difference}")
        return reply

    def _difference(self, reply: Completion) -> str | None:
        """From what the training found, as far as that is known."""
        score, expected = float(reply.text), self.trained.score
        asks = "is it the same critic, with its own chat template and end token?"
        if self.trained.tokens not in (None, reply.prompt_tokens) and not reply.tokens_bounded:
            trained = self.trained.tokens
            return f"reads the trial step as {reply.prompt_tokens} tokens, the training as {trained}: {asks}"
        if expected is None or abs(score - expected) <= TOLERANCE:
            return None
        return f"scores the trial step {score:.3f}, and did so by {expected:.3f} when it was trained: {asks}"
