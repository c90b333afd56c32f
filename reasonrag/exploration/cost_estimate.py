"""`reasonrag generate --dry-run`: estimates requests, tokens, cost and time of a run before it is paid for.

The offline teacher rehearses some questions, and no request is sent (see `rehearsal`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference import OutcomeName
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.agent.recipe_file import name_of_recipe
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import QuestionFile
from reasonrag.errors import InputError
from reasonrag.exploration.plan import Plan, lacks_teacher
from reasonrag.exploration.rehearsal import UsagePerQuestion, rehearse
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import nothing_found
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE
from reasonrag.llm.expected_usage import Range, spread, sum_of_dollars
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import price_list, prices_given
from reasonrag.llm.settings import DEFAULT_TEACHER
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.rendering import Part, Shown, Table, counted, dollars
from reasonrag.run_config import recorded_effort
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

QUICKEST_S, SLOWEST_S = 1.0, 4.0
"""Latency of a hosted model with replies of that length."""
TOKENS_PER_SECOND = 50
"""Of reasoning up to the token limit; a guess."""


class CostEstimate(BaseModel, Shown):
    """Expected usage, cost and time of a whole run; the output of `generate --dry-run --json`."""

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
    prices_as_of: str
    """The price list and its version; `given by hand` where the user gave the prices."""
    reasoning: bool
    """Whether the teacher is expected to reason, so that the high end has replies up to the token limit."""
    hours: Range
    """At this concurrency; an endpoint's rate limits may make it longer."""

    def shown(self) -> Iterator[Part]:
        cost = self.dollars
        rows = [
            ("questions", self.questions),
            ("completions", f"{self.calls} in {self.requests} requests"),
            ("prompt tokens", self.prompt_tokens),
            ("completion tokens", self.completion_tokens),
            ("cost", f"{dollars(cost.low)} to {dollars(cost.high)}" if cost else "unknown, without a price"),
            ("hours", f"{self.hours.low:.1f} to {self.hours.high:.1f} at this --concurrency"),
        ]
        yield Table(f"estimate  recipe {self.recipe}  teacher {self.model}", rows)
        long = "reasoning up to --max-reply-tokens" if self.reasoning else "long replies, without reasoning"
        yield (
            f"low: two standard errors below the mean of {counted(self.measured_questions, 'question')} rehearsed "
            f"by the offline teacher; high: the whole budget of the recipe, with {long}. No request was sent"
        )
        if cost and cost.high:
            yield f"prices: {self.prices_as_of}; prompts from the endpoint's cache may cost less"


@public_call(GenerateSettings)
def estimate(
    *, watcher: Watcher | None = None, outcome: OutcomeName | OutcomeFunction | None = None, **flags: Any
) -> CostEstimate:
    """Estimate what `generate` with these settings would use: requests, tokens, dollars and hours.

    Needs no key. Raises InputError as `generate` does, and if no question could be rehearsed.

    Example:
        >>> price = reasonrag.estimate(dataset="atlas", limit=100, model="gpt-4o")
        >>> price.dollars.low < price.dollars.high
        True

    Args:
        watcher: is told what happens while it goes on; none: silent.
        outcome: a name, or a function as for `generate`.
    """
    function, named = (outcome, {}) if callable(outcome) else (None, {"outcome": outcome})
    settings = resolve(GenerateSettings, "generate", flags | named)
    if settings.rank:
        raise InputError("--shard: an estimate is of a whole run; leave it out")
    watcher = watcher or SilentWatcher()
    if lacks_teacher(settings):
        watcher.say(f"neither --model nor {KEY_VARIABLE} is set: estimated for {DEFAULT_TEACHER}")
        settings = settings.model_copy(update={"model": DEFAULT_TEACHER})
    plan = Plan.of(settings, function=function)
    teacher = plan.teacher.resumed(recorded_effort(settings.run_directory))
    plan = replace(plan, teacher=teacher)
    source, corpus = plan.find_data(watcher.say)
    if settings.run is None:
        watcher.say(f"run directory: {settings.run_directory}")
    total = len(source.limited(settings.limit))
    plan.say_terms(watcher)
    usage = run_to_end(_rehearsed(plan, source, corpus, watcher))
    models = zip(plan.models.values(), usage.by_model, strict=True)
    shares = [(model, model.expected(each.times(total, total))) for model, each in models]
    first, *others = (share for _, share in shares)
    whole = sum(others, start=first)
    longest = max(each.reasons * each.sampling.max_tokens for each, _ in shares) / TOKENS_PER_SECOND
    one, hour = whole.requests, 3600 * settings.concurrency
    return CostEstimate(
        measured_questions=usage.questions,
        questions=total,
        model=teacher.name,
        recipe=name_of_recipe(settings.recipe),
        **vars(whole),
        dollars=sum_of_dollars(share.dollars(model.price) if model.price else None for model, share in shares),
        prices_as_of=price_list() if teacher.name not in prices_given(settings.price) else "given by hand",
        reasoning=teacher.reasons,
        hours=Range(low=one.low * QUICKEST_S / hour, high=one.high * (SLOWEST_S + longest) / hour),
    )


async def _rehearsed(plan: Plan, source: QuestionFile, corpus: Path | None, watcher: Watcher) -> UsagePerQuestion:
    questions = source.limited(plan.questions.limit)
    async with AsyncExitStack() as opened:
        retriever = await plan.open_retriever(corpus, opened, watcher.say)
        agents = plan.agents(OfflineTeacher(), retriever, OfflineTeacher())
        usage = await rehearse(spread(questions, len(questions)), plan.recipe, *agents, plan.rule)
    if usage is None:
        raise InputError(
            "the offline teacher could not explore any of the questions, so there is no estimate; see what the "
            "retriever says with: reasonrag search INDEX_OR_CORPUS QUERY"
        )
    warn_all(nothing_found(usage.empty_searches, usage.searches, "rehearsed searches"), watcher)
    return usage
