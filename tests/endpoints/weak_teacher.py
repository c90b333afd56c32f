"""The weak teacher, for runs that need degenerate trees: it repeats the question, guesses, and searches on and on.

It thinks, reads and concludes; what else it is asked, the offline teacher answers.
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
from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt, parse_prompt
from reasonrag.llm.extraction.words import Proposal, draw
from tests.endpoints import weak_habits

NAME = "offline-weak"
"""As a model at an endpoint."""


class WeakTeacher:
    """As a `ChatModel`, like `OfflineTeacher`."""

    name = NAME

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        await asyncio.sleep(0)  # never starves the event loop
        own = {"temperature": request.sampling.temperature, "seed": request.seeds[0]}
        said = [reply(request.messages, choice=choice, **own) for choice in range(len(request.samples))]
        return offline.as_completions(request, said)

    async def check(self) -> None:
        """Always available."""

    async def close(self) -> None:
        """Nothing to close."""


def reply(messages: Sequence[Message], *, temperature: float, seed: int, choice: int) -> str:
    """As `offline.reply`."""
    prompt = parse_prompt(messages)
    if (turn := _TURNS.get(prompt.turn)) is None:
        return offline.reply(messages, temperature=temperature, seed=seed, choice=choice)
    identity = [[(m.role, m.content) for m in messages], seed, choice]
    dice = random.Random(hashlib.sha256(orjson.dumps(identity)).digest())
    return turn(prompt, temperature, dice)


def _think(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    answers = weak_habits.early_answers(prompt)
    drawn = draw(weak_habits.queries(prompt) + answers, temperature, dice)
    if drawn in answers:
        return f"So the answer is <answer>{drawn.text}</answer>"
    lead = "The evidence so far does not settle it." if prompt.evidence else "Nothing is known yet."
    return f"{lead} So the next query is <query>{drawn.text}</query>"


def _read(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    options = [Proposal("None", 0.8), *weak_habits.quotes(prompt)]
    chosen = draw(options, temperature, dice).text
    if chosen == "None":
        return "<evidence>None</evidence>"
    if dice.random() < 0.5:
        second = draw(options, temperature, dice).text
        chosen += f" {second}" if second not in ("None", chosen) else ""
    return f"Based on the query, the relevant evidence is <evidence>{chosen}</evidence>"


def _conclude(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    return f"So the answer is <answer>{draw(weak_habits.answers(prompt), temperature, dice).text}</answer>"


_TURNS = {"think": _think, "read": _read, "conclude": _conclude}
