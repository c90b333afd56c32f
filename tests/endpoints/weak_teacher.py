"""The weak teacher, for runs that need degenerate trees: in most of its turns it repeats the question, or guesses.

Everything else is the offline teacher's.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Sequence

import orjson

from preference import Message
from reasonrag.llm import offline
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.extraction.habits import names, two_of, wants_verdict
from reasonrag.llm.extraction.parsed_prompt import parse_prompt


class WeakTeacher(offline.OfflineTeacher):
    """As a `ChatModel`."""

    def __init__(self) -> None:
        super().__init__(name="offline-weak")

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        await asyncio.sleep(0)  # never starves the event loop
        own = {"temperature": request.sampling.temperature, "seed": request.seeds[0]}
        said = [_reply(request.messages, choice=choice, **own) for choice in range(len(request.samples))]
        return offline.as_completions(request, said)


def _reply(messages: Sequence[Message], *, temperature: float, seed: int, choice: int) -> str:
    prompt = parse_prompt(messages)
    identity = [[(m.role, m.content) for m in messages], seed, choice]
    dice = random.Random(hashlib.sha256(orjson.dumps(identity)).digest())
    if prompt.turn not in ("think", "conclude") or dice.random() < 0.2:
        return offline.reply(messages, temperature=temperature, seed=seed, choice=choice)
    if prompt.turn == "think" and dice.random() < 0.7:
        return f"Nothing is known yet. So the next query is <query>{prompt.question.rstrip('?')}</query>"
    options = ["yes", "no"] if wants_verdict(prompt.question) else two_of(prompt.question) or names(prompt.question)
    return f"So the answer is <answer>{dice.choice([*options, 'unknown'])}</answer>"
