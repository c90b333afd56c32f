"""`reasonrag generate --dry-run`: estimates requests, tokens, cost and time of a run before it is paid for.

Without a pilot, the offline teacher rehearses some questions with the real recipe, prompts and passages and no
requests: that is the low end; the high end takes the recipe's whole budget and a verbose teacher's replies. With a
pilot, the first questions are explored for real, within the run itself, so that nothing is lost.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from preference import RolloutRecord, Usage, read_rollouts
from reasonrag.agent.from_settings import find_data
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.concurrency import run_to_end
from reasonrag.errors import InputError, ReasonragError
from reasonrag.exploration.explore import explore
from reasonrag.exploration.from_settings import call_budget, find_models, find_rule, function_or_name, resolve_recipe
from reasonrag.exploration.generate import generate
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import StopReason
from reasonrag.files import ROLLOUTS
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import STUDENT, OfflineTeacher
from reasonrag.llm.prices import Price, price_list
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.settings import resolve

REHEARSED_QUESTIONS = 20
REPLY_TOKENS = (40, 100)
"""Reply length of a terse and of a verbose teacher. 40 is the offline teacher's mean; the 12 replies in ReasonRAG's
published GPT-4o trees have 393 characters on average, about 100 tokens."""
SECONDS_PER_REQUEST = (1.0, 4.0)
"""Latency range of a hosted model with replies of that length, unless a pilot measured it."""


class Range(BaseModel):
    low: float
    high: float


class CostEstimate(BaseModel):
    """Expected usage, cost and time of a whole run; the output of `generate --dry-run --json`."""

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
    """Cost of all models; null if one has no price."""
    dollars_by_model: dict[str, Range | None]
    batch_discount: float
    """Share that a Batch API would save; reasonrag does not use one."""
    cached_price_in: float | None
    """Dollars per million prompt tokens from the endpoint's cache; `dollars` does not assume it."""
    prices_as_of: str
    """The price list and its version; `given by hand` where the user gave the prices."""
    hours: Range
    limited_by: str
    """What decides the high end of the hours: `concurrency`, `requests per minute` or `tokens per minute`."""
    spent_dollars: float | None
    """Cost of the pilot."""
    failed: int = 0
    """Questions without a tree after the pilot, on which nothing was measured."""
    stopped: StopReason | None = None
    """Why the pilot ended before its questions did; null if it did not."""


class NothingMeasured(ReasonragError):
    """The pilot gave no tree. `stopped`: what ended it early; None: its questions failed."""

    cause = "pilot"

    def __init__(self, message: str, stopped: StopReason | None) -> None:
        super().__init__(message)
        self.stopped = stopped


@dataclass(frozen=True)
class _UsageRange:
    """Lower and upper estimate of some usage."""

    calls: Range
    requests: Range
    prompt_tokens: Range
    completion_tokens: Range

    def times(self, questions: int) -> _UsageRange:
        each = vars(self).values()
        return _UsageRange(*(Range(low=questions * one.low, high=questions * one.high) for one in each))

    def without(self, part: _UsageRange) -> _UsageRange:
        """The difference, at least 0, since a pilot's bounds are estimated separately."""
        both = zip(vars(self).values(), vars(part).values(), strict=True)
        return _UsageRange(*(Range(low=max(0.0, a.low - b.low), high=max(0.0, a.high - b.high)) for a, b in both))

    def dollars(self, price: Price | None) -> Range | None:
        """None without a price."""
        if price is None:
            return None
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return Range(low=price.cost(prompt.low, completion.low), high=price.cost(prompt.high, completion.high))


@dataclass(frozen=True)
class _MeasuredUsage:
    """Means per question, of all models and of the value model among them."""

    all: _UsageRange
    values: _UsageRange | None
    seconds_per_request: tuple[float, float]
    questions: int
    spent_dollars: float | None = None
    failed: int = 0
    stopped: StopReason | None = None


def estimate(
    *,
    pilot: int = 0,
    watcher: Watcher | None = None,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    **flags: Any,
) -> CostEstimate:
    """Estimate what `generate` with these flags would use. Needs no key without a pilot; see `generate` for the flags.

    pilot: number of questions to explore for real first; what stopped it early is in the estimate. Raises InputError as
        `generate` does, and if no question could be rehearsed; NothingMeasured for a pilot that ended without a tree,
        whatever it spent.
    """
    function, named = function_or_name(flags)
    settings = resolve(GenerateSettings, "generate", named)
    source, _ = find_data(settings, find_rule(settings, function).check)
    total = len(source.limited(settings.limit))
    teacher, student = find_models(settings, chat_model, value_chat_model)
    if pilot:
        measured = _pilot(min(pilot, total), flags, watcher, chat_model, value_chat_model)
    else:
        measured = _rehearse(min(REHEARSED_QUESTIONS, total), settings, watcher, student, function)
    whole = measured.all.times(total)
    shares = [(teacher, whole)]
    if student and measured.values:
        values = measured.values.times(total)
        shares = [(teacher, whole.without(values)), (student, values)]
    by_model = {model.name: share.dollars(model.price) for model, share in shares}
    hours, limited_by = _hours(whole.requests, shares, measured.seconds_per_request)
    return CostEstimate(
        measured_by="pilot" if pilot else "rehearsal",
        measured_questions=measured.questions,
        questions=total,
        model=teacher.name,
        recipe=settings.recipe,
        **vars(whole),
        dollars=_sum(by_model.values()),
        dollars_by_model=by_model,
        batch_discount=teacher.price.batch_discount if teacher.price else 0.0,
        cached_price_in=teacher.price.cached_in if teacher.price else None,
        prices_as_of=price_list() if settings.price_in is settings.price_out is None else "given by hand",
        hours=hours,
        limited_by=limited_by,
        spent_dollars=measured.spent_dollars,
        failed=measured.failed,
        stopped=measured.stopped,
    )


def _rehearse(
    questions: int,
    settings: GenerateSettings,
    watcher: Watcher | None,
    student: ModelSpec | None,
    function: OutcomeFunction | None,
) -> _MeasuredUsage:
    """Explore the first questions with the offline teacher, also as value model, in a temporary directory."""
    search = resolve_recipe(settings).search
    quiet = _MessagesOnly(watcher) if watcher else SilentWatcher()
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        uncapped = dict.fromkeys(("max_cost", "max_calls", "max_tokens"))
        in_its_place = OfflineTeacher(name=STUDENT) if student else None
        rehearsal = settings.model_copy(update=uncapped | {"run": run, "limit": questions, "abort_degenerate": 0.0})
        run_to_end(explore(rehearsal, OfflineTeacher(), None, quiet, value_chat_model=in_its_place, function=function))
        trees = [rollout for rollout in read_rollouts(run / ROLLOUTS) if not rollout.error]
    if not trees:
        raise InputError(
            "the offline teacher could explore none of the questions, so there is nothing to estimate from"
        )
    calls = statistics.mean(tree.usage.calls for tree in trees)
    searched = calls - statistics.mean(tree.usage.judgements for tree in trees)
    scale = max(1.0, call_budget(search) / searched)
    thoughts = _thoughts_in_a_prompt(trees)
    return _MeasuredUsage(
        all=_rehearsed([tree.usage for tree in trees], scale, thoughts),
        values=_rehearsed(_value_usages(trees), scale, thoughts) if student else None,
        seconds_per_request=SECONDS_PER_REQUEST,
        questions=len(trees),
    )


def _rehearsed(usages: Sequence[Usage], scale: float, thoughts: float) -> _UsageRange:
    """Measured usage, and the upper end with replies `scale` times as long. thoughts: earlier replies per prompt."""
    calls, requests, prompt_tokens, _ = (statistics.mean(each) for each in _columns(usages))
    short, talkative = REPLY_TOKENS
    grown = requests * thoughts * (talkative - short)
    return _UsageRange(
        calls=Range(low=calls, high=calls * scale),
        requests=Range(low=requests, high=requests * scale),
        prompt_tokens=Range(low=prompt_tokens, high=(prompt_tokens + grown) * scale),
        completion_tokens=Range(low=calls * short, high=calls * scale * talkative),
    )


def _pilot(
    questions: int,
    flags: dict[str, Any],
    watcher: Watcher | None,
    chat_model: ChatModel | None,
    value_chat_model: ChatModel | None,
) -> _MeasuredUsage:
    """Explore the first questions of the run for real."""
    summary = generate(
        watcher=watcher, chat_model=chat_model, value_chat_model=value_chat_model, **(flags | {"limit": questions})
    )
    trees = [rollout for rollout in read_rollouts(Path(summary.run) / ROLLOUTS) if not rollout.error]
    if not trees:
        causes = [*summary.failures_by_cause, *([summary.stopped.message] if summary.stopped else [])]
        raise NothingMeasured(
            f"the pilot explored no question, so there is nothing to measure: {', '.join(causes)}", summary.stopped
        )
    latency = summary.session_seconds_per_request
    return _MeasuredUsage(
        all=_UsageRange(*map(_confidence, _columns([tree.usage for tree in trees]))),
        values=_UsageRange(*map(_confidence, _columns(_value_usages(trees)))) if summary.value_model else None,
        seconds_per_request=(latency, latency) if latency else SECONDS_PER_REQUEST,
        questions=len(trees),
        spent_dollars=summary.cost_usd,
        failed=summary.failed,
        stopped=summary.stopped,
    )


def _value_usages(trees: Sequence[RolloutRecord]) -> list[Usage]:
    return [tree.value_usage or Usage() for tree in trees]


def _columns(usages: Sequence[Usage]) -> list[tuple[float, ...]]:
    """Calls, requests, prompt and completion tokens, of each question."""
    rows = ((each.calls, each.requests, each.prompt_tokens, each.completion_tokens) for each in usages)
    return list(zip(*rows, strict=True))


def _thoughts_in_a_prompt(trees: Sequence[RolloutRecord]) -> float:
    """Mean number of earlier replies in a prompt: half of those on a whole path."""
    steps = [end.steps for tree in trees for node in tree.nodes for end in node.rollouts]
    return (statistics.mean(steps) - 1) / 2 if steps else 0.0


def _confidence(values: Sequence[float]) -> Range:
    """The mean plus and minus two standard errors; half to double for a single value."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return Range(low=mean / 2, high=2 * mean)
    error = 2 * statistics.stdev(values) / math.sqrt(len(values))
    return Range(low=max(0.0, mean - error), high=mean + error)


def _sum(ranges: Iterable[Range | None]) -> Range | None:
    total = Range(low=0.0, high=0.0)
    for each in ranges:
        if each is None:
            return None
        total = Range(low=total.low + each.low, high=total.high + each.high)
    return total


def _hours(
    requests: Range, shares: Sequence[tuple[ModelSpec, _UsageRange]], seconds: tuple[float, float]
) -> tuple[Range, str]:
    """How long the requests take at the given limits, and which of them is the tightest.

    shares: of the teacher, and of the value model if there is one; rate limits hold for each by itself. One path's
    requests wait for each other, whichever model answers them, so a value model's are no second lane.
    """

    def needed(end: Literal["low", "high"], seconds: float) -> dict[str, float]:
        found = {"concurrency": getattr(requests, end) * seconds / shares[0][0].limits.concurrency / 3600}
        for model, part in shares:
            tokens = getattr(part.prompt_tokens, end) + getattr(part.completion_tokens, end)
            for name, count, most in (
                ("requests per minute", getattr(part.requests, end), model.limits.rpm),
                ("tokens per minute", tokens, model.limits.tpm),
            ):
                if most:
                    found[name] = max(found.get(name, 0.0), count / most / 60)
        return found

    low, high = needed("low", seconds[0]), needed("high", seconds[1])
    return Range(low=max(low.values()), high=max(high.values())), max(high, key=lambda name: high[name])


class _MessagesOnly(SilentWatcher):
    """Passes on messages only: a rehearsal has no progress worth showing."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def say(self, message: str) -> None:
        self._watcher.say(message)
