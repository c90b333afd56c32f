"""`reasonrag generate --dry-run`: what a run will ask for, cost and take, before it is paid for.

Without a pilot the offline teacher rehearses some of the questions, with the real recipe, prompts and passages, and
asks nobody: that is the low end; the high end has the recipe's whole budget and the replies of a talkative teacher.
With a pilot the first questions are explored for real, in the run itself, so that nothing of it is lost.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from preference import RolloutRecord, read_rollouts
from reasonrag.chat import ChatModel
from reasonrag.concurrency import run_to_end
from reasonrag.errors import InputError
from reasonrag.generation import explore, find_data, generate, model_name, resolve_recipe
from reasonrag.offline import OfflineTeacher
from reasonrag.prices import PRICES_AS_OF, Price, find_price
from reasonrag.runs import ROLLOUTS
from reasonrag.session import SilentWatcher, Watcher
from reasonrag.settings import GenerateSettings, resolve

REHEARSED_QUESTIONS = 20
REPLY_TOKENS = (40, 100)
"""A short-spoken teacher and a talkative one. 40 is the offline teacher's mean; the 12 replies in the published GPT-4o
trees of ReasonRAG have 393 characters on average, about 100 tokens."""
SECONDS_PER_REQUEST = (1.0, 4.0)
"""Of a hosted model with replies of that length, where no pilot has measured it."""


class Range(BaseModel):
    low: float
    high: float


class Estimate(BaseModel):
    """What a whole run is expected to take; the output of `generate --dry-run --json`."""

    measured_by: Literal["rehearsal", "pilot"]
    measured_questions: int
    questions: int
    model: str
    recipe: str
    calls: Range
    requests: Range
    prompt_tokens: Range
    completion_tokens: Range
    dollars: Range | None
    """Null for a model without a price."""
    batch_discount: float
    """Share that a Batch API would take off; reasonrag does not use one."""
    cached_price_in: float | None
    """Dollars per million prompt tokens that the endpoint finds in its cache; not counted on in `dollars`."""
    prices_as_of: str
    hours: Range
    limited_by: str
    """What decides the high end of the hours: `concurrency`, `requests per minute` or `tokens per minute`."""
    spent_dollars: float | None
    """What the pilot has cost."""


@dataclass(frozen=True)
class _Measured:
    """Means per question: those expected at least, and at most."""

    calls: tuple[float, float]
    requests: tuple[float, float]
    prompt_tokens: tuple[float, float]
    completion_tokens: tuple[float, float]
    seconds_per_request: tuple[float, float]
    questions: int
    spent_dollars: float | None = None


def estimate(
    *, pilot: int = 0, watcher: Watcher | None = None, chat_model: ChatModel | None = None, **flags: Any
) -> Estimate:
    """What `generate` with these flags would take. Needs no key without a pilot; see `generate` for the flags.

    pilot: questions to explore for real first. Raises InputError where none of them could be explored.
    """
    settings = resolve(GenerateSettings, "generate", flags)
    source, _ = find_data(settings)
    total = len(source.limited(settings.limit))
    name = chat_model.name if chat_model else model_name(settings)
    price = find_price(name, tokens_in=settings.price_in, tokens_out=settings.price_out)
    if pilot:
        measured = _pilot(min(pilot, total), flags, watcher, chat_model)
    else:
        measured = _rehearse(min(REHEARSED_QUESTIONS, total), settings, watcher)
    whole = {
        field: Range(low=total * getattr(measured, field)[0], high=total * getattr(measured, field)[1])
        for field in ("calls", "requests", "prompt_tokens", "completion_tokens")
    }
    hours, limited_by = _hours(whole, measured, settings)
    return Estimate(
        measured_by="pilot" if pilot else "rehearsal",
        measured_questions=measured.questions,
        questions=total,
        model=name,
        recipe=settings.recipe,
        **whole,
        dollars=_dollars(whole, price),
        batch_discount=price.batch_discount if price else 0.0,
        cached_price_in=price.cached_in if price else None,
        prices_as_of=PRICES_AS_OF if settings.price_in is settings.price_out is None else "given by hand",
        hours=hours,
        limited_by=limited_by,
        spent_dollars=measured.spent_dollars,
    )


def _rehearse(questions: int, settings: GenerateSettings, watcher: Watcher | None) -> _Measured:
    """The first questions explored by the offline teacher, in a place of their own."""
    search = resolve_recipe(settings).search
    quiet = _Quiet(watcher) if watcher else SilentWatcher()
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        free = {"run": run, "limit": questions, "max_cost": None, "max_calls": None, "max_tokens": None}
        run_to_end(explore(settings.model_copy(update=free), OfflineTeacher(), None, quiet))
        trees = [rollout for rollout in read_rollouts(run / ROLLOUTS) if not rollout.error]
    if not trees:
        raise InputError(
            "the offline teacher could explore none of the questions, so there is nothing to estimate from"
        )
    calls, requests, prompt_tokens, _ = (statistics.mean(each) for each in _columns(trees))
    most_calls = max(calls, search.max_calls or 2 * search.simulations)
    short, talkative = REPLY_TOKENS
    grown = requests * _thoughts_in_a_prompt(trees) * (talkative - short)
    scale = most_calls / calls
    return _Measured(
        calls=(calls, most_calls),
        requests=(requests, requests * scale),
        prompt_tokens=(prompt_tokens, (prompt_tokens + grown) * scale),
        completion_tokens=(calls * short, most_calls * talkative),
        seconds_per_request=SECONDS_PER_REQUEST,
        questions=len(trees),
    )


def _pilot(questions: int, flags: dict[str, Any], watcher: Watcher | None, chat_model: ChatModel | None) -> _Measured:
    """The first questions of the run, explored for real."""
    summary = generate(watcher=watcher, chat_model=chat_model, **(flags | {"limit": questions}))
    trees = [rollout for rollout in read_rollouts(Path(summary.run) / ROLLOUTS) if not rollout.error]
    if not trees:
        causes = ", ".join(summary.failures_by_cause) or (summary.stopped.message if summary.stopped else "none asked")
        raise InputError(f"the pilot explored no question, so there is nothing to measure: {causes}")
    calls, requests, prompt_tokens, completion_tokens = map(_confidence, _columns(trees))
    latency = summary.session_seconds_per_request
    return _Measured(
        calls=calls,
        requests=requests,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        seconds_per_request=(latency, latency) if latency else SECONDS_PER_REQUEST,
        questions=len(trees),
        spent_dollars=summary.cost_usd,
    )


def _columns(trees: Sequence[RolloutRecord]) -> list[list[float]]:
    """Calls, requests, prompt and completion tokens, of each question."""
    fields: list[Callable[[RolloutRecord], float]] = [
        lambda tree: tree.usage.calls,
        lambda tree: tree.usage.requests,
        lambda tree: tree.usage.prompt_tokens,
        lambda tree: tree.usage.completion_tokens,
    ]
    return [[field(tree) for tree in trees] for field in fields]


def _thoughts_in_a_prompt(trees: Sequence[RolloutRecord]) -> float:
    """How many earlier replies a prompt holds on average: half of those on a whole path."""
    steps = [end.steps for tree in trees for end in tree.nodes[0].rollouts]
    return (statistics.mean(steps) - 1) / 2 if steps else 0.0


def _confidence(values: Sequence[float]) -> tuple[float, float]:
    """The mean, two standard errors either way; half to double for a single value."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return mean / 2, 2 * mean
    error = 2 * statistics.stdev(values) / math.sqrt(len(values))
    return max(0.0, mean - error), mean + error


def _dollars(whole: dict[str, Range], price: Price | None) -> Range | None:
    if price is None:
        return None
    prompt, completion = whole["prompt_tokens"], whole["completion_tokens"]
    return Range(low=price.cost(prompt.low, completion.low), high=price.cost(prompt.high, completion.high))


def _hours(whole: dict[str, Range], measured: _Measured, settings: GenerateSettings) -> tuple[Range, str]:
    """How long the requests take at the given limits, and which of them is the tightest."""

    def needed(end: Literal["low", "high"], seconds: float) -> dict[str, float]:
        requests = getattr(whole["requests"], end)
        tokens = getattr(whole["prompt_tokens"], end) + getattr(whole["completion_tokens"], end)
        found = {"concurrency": requests * seconds / settings.concurrency / 3600}
        if settings.rpm:
            found["requests per minute"] = requests / settings.rpm / 60
        if settings.tpm:
            found["tokens per minute"] = tokens / settings.tpm / 60
        return found

    low, high = needed("low", measured.seconds_per_request[0]), needed("high", measured.seconds_per_request[1])
    return Range(low=max(low.values()), high=max(high.values())), max(high, key=lambda name: high[name])


class _Quiet(SilentWatcher):
    """A watcher that hears of messages only: a rehearsal has no progress worth showing."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def say(self, message: str) -> None:
        self._watcher.say(message)
