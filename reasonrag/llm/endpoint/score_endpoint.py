"""A served critic as a `ChatModel`: its reply to a state and a step is one number, the raw score, as text.

Decides how a score is asked for: at vLLM's `/pooling`, or `/classify` where a server has no other, as a conversation
that the critic's own chat template renders, and without the activation that vLLM applies by default. Checks on a fixed
conversation that the server computes what the training did. Does not know what scores mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from preference import Message
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.endpoint.endpoint import EndpointModel, OneAddress
from reasonrag.llm.endpoint.http_client import Connection, HttpAnswer, score_of
from reasonrag.web.client import shown_url

_PATHS = ("/pooling", "/classify")
TRIAL: Final = (
    Message(role="system", content="Take the next step."),
    Message(role="user", content="Question: Which river flows through the town?"),
    Message(role="assistant", content="I need to search.\n<query>river that flows through the town</query>"),
)
"""The conversation whose score a critic's folder holds."""
TOLERANCE: Final = 0.25
"""Largest difference of that score: bfloat16 moves scores of a 7B by about a tenth."""
_NOISE: Final = 0.05
"""The same after a sigmoid."""


class ScoreEndpoint(EndpointModel):
    """Raw scores over HTTP. trial_score: what the critic gave for `TRIAL` when it was trained; None: not known."""

    trial_messages = TRIAL
    trial_score: float | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._path = _PATHS[0]

    async def send(self, connection: Connection, body: Mapping[str, Any], request: ChatRequest) -> HttpAnswer:
        from openai import APIStatusError

        asked = {
            "model": body["model"],
            "messages": request.wire_messages(),
            "task": "classify",
            "use_activation": False,
            "add_generation_prompt": False,
        }
        try:
            return await connection.post(asked, self._path)
        except APIStatusError as error:
            if error.status_code != HTTPStatus.NOT_FOUND or self._path == _PATHS[-1]:
                raise
            self._path = _PATHS[-1]
            del asked["task"]
            return await connection.post(asked, self._path)

    def read(self, answer: HttpAnswer, request: ChatRequest) -> list[Completion]:
        return [score_of(answer.content, self._secrets, prompt_size=request.size)]

    async def _check(self, endpoint: OneAddress) -> None:
        """Raises InputError also for a server whose score of `TRIAL` is another than the training's."""
        await super()._check(endpoint)
        if self.trial_score is None:
            return
        answer = await self._post(endpoint, self._trial())
        score, expected = float(answer.completions[0].text), self.trial_score
        if abs(score - expected) <= TOLERANCE:
            return
        squashed = abs(score - 1 / (1 + math.exp(-expected))) < _NOISE
        raise InputError(
            f"{self.name} at {shown_url(endpoint.connection.base_url)} scores the trial step {score:.3f}, and did so "
            f"by {expected:.3f} when it was trained: "
            + (
                "the server applies a sigmoid in spite of use_activation: false; take a newer vLLM"
                if squashed
                else "is it the same critic, with its own chat template and end token?"
            )
        )
