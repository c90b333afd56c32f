"""A chat model with scripted replies, so that no client needs to be patched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatRequest, Completion, TokenLogprob
from reasonrag.llm.offline import OfflineTeacher

Script = Callable[[ChatRequest, int], Completion | str]
"""(request, position of the draw in it) -> reply."""


class ScriptedModel:
    """Replies from a function of the request, or from a list in request order. Records every request.

    A reply that is a string is certain where log-probabilities are asked for: one token of probability 1.
    """

    def __init__(self, script: Script | Iterable[Completion | str], *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ChatRequest] = []
        self._script = script if callable(script) else _in_order(script)

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        await asyncio.sleep(0)  # yields to other tasks, like every real model
        self.requests.append(request)
        replies = (self._script(request, position) for position in range(len(request.samples)))
        return [
            Completion(
                text=reply,
                finish_reason="stop",
                requests=int(position == 0),
                logprobs=(TokenLogprob(reply, 0.0),) if request.sampling.logprobs else None,
            )
            if isinstance(reply, str)
            else reply
            for position, reply in enumerate(replies)
        ]

    async def check(self) -> None:
        """Always available."""


class RecordedOffline(ScriptedModel):
    """The offline teacher, every request remembered."""

    def __init__(self) -> None:
        super().__init__([], name="offline")

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.requests.append(request)
        return await OfflineTeacher().complete(request)


def turn(request: ChatRequest) -> str:
    """Which turn a request is, by what it stops at."""
    turns = {"</query>": "think", "</evidence>": "read", "</answer>": "conclude"}
    return (turns | {"</score>": "score", "</ranking>": "rank", "</support>": "support"})[request.sampling.stop[0]]


def _in_order(replies: Iterable[Completion | str]) -> Script:
    remaining = iter(replies)

    def next_reply(_request: ChatRequest, _position: int) -> Completion | str:
        for reply in remaining:
            return reply
        raise ModelError("the script has no reply left", cause="script_ended")

    return next_reply
