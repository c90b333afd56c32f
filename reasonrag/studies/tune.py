"""`reasonrag tune`: which configuration yields the most preference pairs for its cost, on the user's own questions.

Decides what is varied (one setting at a time around the user's own), in which order, and what is reported of a trial.
All trials share one journal: a draw has the same number in every configuration, so most completions serve several
trials; a trial is billed what it would have cost alone. Does not know how a tree is searched, what makes a pair or what
is noise, nor which configuration trains the better student: confidence is relative to the teacher that continued.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel

from mcts import Recipe
from mcts.selection import SCORES
from preference import PairingRules, RolloutRecord, candidates, read_rollouts
from preference.export.files import write_json
from reasonrag.agent.from_settings import caps_of, find_data, shown_settings
from reasonrag.agent.prompting import load_prompts
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Questions
from reasonrag.errors import InputError, choices
from reasonrag.exploration.explore import explore
from reasonrag.exploration.from_settings import (
    call_budget,
    find_agent,
    find_models,
    find_rule,
    max_steps,
    resolve_recipe,
    value_flags,
)
from reasonrag.exploration.rehearsal import rehearse
from reasonrag.exploration.settings import OF_RANKS, GenerateSettings
from reasonrag.exploration.summary import StopReason
from reasonrag.files import CONFIG, JOURNAL, ROLLOUTS, TRIALS, TUNING, only_writer
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import EndpointModel
from reasonrag.llm.expected_usage import spread
from reasonrag.llm.journal import open_journal
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import counted
from reasonrag.retrieval.from_settings import object_or_name, open_retriever
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import get_consent, needs_consent
from reasonrag.run.models import Models
from reasonrag.run_config import another_run_named, recorded_effort, versions
from reasonrag.settings import OWN_EFFORT, SETTINGS_FILE, resolve
from reasonrag.signatures import public_call
from reasonrag.studies.pareto import (
    ConfigurationMeasurements,
    QuestionYield,
    interval,
    pareto_frontier,
    suggest_trial,
)
from reasonrag.studies.settings import TuneSettings

BASE = "base"

VARIED: dict[str, tuple[float, ...]] = {
    "max_calls_per_question": (64, 128, 192),
    "siblings": (3, 4, 6),
    "continuations": (1, 2),
    "exploration": (0.5, 1.414),
    "temperature": (0.7, 1.0, 1.3),
    "max_steps": (5, 7),
}
"""Values tried for each setting, in the order of the trials: first those that share most completions with the base.
Alpha is not among them, as it decides which of two steps is better: more pairs that are right by another measure are no
reason to adopt that measure."""
_USED_BY: dict[str, Callable[[Recipe], bool]] = {
    "continuations": lambda recipe: recipe.search.valuation == "continuation" and not recipe.greedy_continuations,
    "exploration": lambda recipe: recipe.search.selection in SCORES,
}
_OF_ONE_RUN = {"run", "limit", "max_cost", "max_calls", "max_tokens", "yes"}
"""Settings that are not part of a configuration."""

Unit = Literal["dollars", "calls"]


class Interval95(BaseModel):
    """The middle 95 % of a bootstrap over questions. An end is null if that resample has no pair."""

    low: float | None
    high: float | None


class TrialReport(BaseModel):
    """The result of one configuration."""

    name: str
    changed: dict[str, Any]
    """Settings that differ from the base."""
    complete: bool
    """Whether every question was tried; otherwise nothing is compared."""
    questions: int
    failed: int
    """Questions without a tree; they count with their cost and without pairs."""
    failures_by_cause: dict[str, int]
    calls: float
    """Completions. From here to `right_pairs`: means per question; costs are those of this configuration alone."""
    requests: float
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float | None
    """Null if the model has no price."""
    pairs: float
    right_pairs: float
    """Expected right pairs: the sum of confidences."""
    questions_with_a_pair: float
    """Share."""
    confidence: float | None
    """Mean over pairs; null without pairs, like `cost_per_right_pair`."""
    cost_per_right_pair: float | None
    """In `Tuning.unit`."""
    distinct_steps: float | None
    """Steps that differ from their siblings, as a share of all draws."""
    intervals: dict[str, Interval95] = {}
    """Intervals by field name, and `cost_change`: the relative change of `cost_per_right_pair` from the base."""
    worse_than_base: bool = False
    """Significantly worse in confidence or questions_with_a_pair."""
    on_frontier: bool = False
    """Whether no other trial dominates it in cost_per_right_pair, right_pairs, confidence and questions_with_a_pair."""


class Tuning(BaseModel):
    """The result of all trials: the content of tuning.json and the output of `tune --json`."""

    run: str
    model: str
    recipe: str
    dataset: str
    split: str
    seed: int
    questions: int
    rules: dict[str, Any]
    """The pairing rules."""
    unit: Unit
    """Unit of `cost_per_right_pair`; calls if the model has no price or is free."""
    planned: int
    """Number of planned trials, including those not reached."""
    trials: list[TrialReport]
    suggested: str | None
    """The base, or the cheapest trial that is significantly cheaper and not significantly worse. Null if the base did
    not finish, or if it would be a base without pairs."""
    config: dict[str, Any]
    """The suggestion as settings of generate; empty without one."""
    calls_apart: int
    """Completions the trials would have needed without sharing."""
    calls_delivered: int
    tokens_delivered: int
    cost_delivered: float | None
    """Total cost in this directory, over all sessions."""
    stopped: StopReason | None
    warnings: list[str] = []
    """Warnings of the base run, which mostly apply to every trial."""
    versions: dict[str, str]

    @property
    def suggests_a_change(self) -> bool:
        """Whether the suggestion differs from the base."""
        return self.suggested not in (None, BASE)

    @property
    def command(self) -> str:
        """The command that explores with the suggested configuration."""
        words = ["reasonrag", "generate"]
        for name, value in self.config.items():
            for each in value if isinstance(value, list) else [value]:
                words += _words(name, each)
        return shlex.join([*words, "--run", "runs/main"])


@dataclass(frozen=True)
class Trial:
    """One configuration. changed: settings that differ from the base."""

    settings: GenerateSettings
    changed: Mapping[str, float]

    @property
    def name(self) -> str:
        return trial_name(self.changed)

    def call_budget(self, questions: int) -> int:
        """The most completions it may ask for."""
        return int(questions * call_budget(resolve_recipe(self.settings).search, path=max_steps(self.settings)))


@public_call(TuneSettings, GenerateSettings, without=("limit", *OF_RANKS))
def tune(
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Tuning:
    """Try configurations on the first questions, and find the one that gives the most right pairs for its cost.

    The settings of `generate` make the base; they come from where `generate` has them, table [generate] included.
    Caps apply to all trials and sessions together; what stopped the trials early is in the result, and the same call
    resumes them. Raises InputError, StorageError and KeyboardInterrupt as `generate` does.

    Example:
        >>> tuned = reasonrag.tune(dataset="atlas", model="offline", pilot=4, vary=["siblings"], run="runs/tune")
        >>> len(tuned.trials) > 1
        True

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
    """
    retriever, named = object_or_name(retriever)
    flags |= named
    own = {name: value for name, value in flags.items() if name in TuneSettings.model_fields}
    others = {name: value for name, value in flags.items() if name not in own}
    if others.get("limit") is not None:
        raise InputError("tune has no limit; --pilot says how many questions are tried")
    if given := [name for name in OF_RANKS if others.get(name) is not None]:
        raise InputError(f"tune explores in this process alone: leave out --{given[0]}")
    settings = resolve(TuneSettings, "tune", own)
    base = resolve(GenerateSettings, "generate", others | {"run": settings.run, "limit": settings.pilot})
    base = base.model_copy(update={name: GenerateSettings.model_fields[name].default for name in OF_RANKS})
    if of_a_value_model := value_flags(base):
        raise InputError(
            f"tune varies the teacher's settings only: leave out {', '.join(of_a_value_model)}, also in the "
            f"environment and in the table [generate] of {SETTINGS_FILE}"
        )
    return run_to_end(_tune(settings, base, chat_model, retriever, watcher or SilentWatcher()))


async def _tune(
    settings: TuneSettings,
    base: GenerateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
) -> Tuning:
    trials, (teacher, _) = plan_trials(base, settings.vary), find_models(base, chat_model)
    source, corpus = find_data(base, find_rule(base).check, searched=retriever is None, say=watcher.say)
    asked = [question.id for question in source.limited(base.limit)]
    check_prices(watcher.say, teacher, capped=base.max_cost is not None)
    if resolve_recipe(base).reward == "rank":
        watcher.say(
            "labels of a judge have no confidence, so right pairs cannot be counted: trials show what they cost and "
            "how many pairs they give, and none is suggested"
        )
    price = teacher.price
    unit: Unit = "dollars" if price and price.cost(1, 1) else "calls"
    journal, tried, stopped = settings.run / JOURNAL, list[_FinishedTrial](), None
    warnings, refused = list[str](), set[str]()
    async with AsyncExitStack() as opened:
        if (settings.run / CONFIG).exists():
            raise InputError(f"{settings.run} is a run directory of generate; choose another --run for the trials")
        opened.enter_context(only_writer(settings.run))
        opened.enter_context(another_run_named(settings.run))
        if chat_model is None:
            chat_model = teacher.open(opened, say=watcher.say)
        teacher = await teacher.settled(chat_model, recorded_effort(settings.run / TRIALS / BASE))
        if isinstance(chat_model, EndpointModel):
            effort = teacher.sampling.reasoning_effort or OWN_EFFORT
            trials = plan_trials(base.model_copy(update={"reasoning_effort": effort}), settings.vary)
        if retriever is None:
            retriever = await open_retriever(base, corpus, opened, say=watcher.say, before_building=[chat_model.check])
        if needs_consent([teacher], caps_of(base), yes=base.yes):
            await chat_model.check()
            await _agree(trials, source.limited(base.limit), retriever, (teacher, chat_model), watcher)
        for number, trial in enumerate(trials, start=1):
            if fixed := refused & trial.changed.keys():
                warnings.append(f"{trial.name} is not tried: {teacher.name} does not accept {', '.join(fixed)}")
                watcher.say(warnings[-1])
                continue
            watcher.say(f"trial {number} of {len(trials)}: {trial.name}")
            summary = await explore(trial.settings, chat_model, retriever, watcher, shared_journal=journal)
            stopped = summary.stopped
            refused |= {each for parameters in summary.refused_parameters.values() for each in parameters}
            warnings = warnings if tried else list(dict.fromkeys(summary.warnings))
            tried.append(_FinishedTrial(trial, _records(trial, asked), settings.rules, unit, complete=stopped is None))
            if stopped:
                break
        reports, suggested = _compare(tried, seed=base.seed)
        spent = await _delivered(journal)
        tuning = Tuning(
            run=str(settings.run),
            model=teacher.name,
            recipe=base.recipe,
            dataset=source.dataset,
            split=source.split,
            seed=base.seed,
            questions=len(asked),
            rules=asdict(settings.rules),
            unit=unit,
            planned=len(trials),
            trials=reports,
            suggested=suggested.name if suggested else None,
            config=_config(suggested, base.model_fields_set) if suggested else {},
            calls_apart=sum(record.usage.calls for each in tried for record in each.records),
            calls_delivered=spent.calls,
            tokens_delivered=spent.prompt + spent.completion,
            cost_delivered=None if price is None else spent.cost(price),
            stopped=stopped,
            warnings=warnings,
            versions=versions(),
        )
        write_json(settings.run / TUNING, tuning.model_dump())
    return tuning


async def _agree(
    trials: Sequence[Trial],
    questions: Questions,
    retriever: Retriever,
    model: tuple[ModelSpec, ChatModel],
    watcher: Watcher,
) -> None:
    """Get consent to the cost of the trials that are not done; low: all answers are shared with the base, high: none.
    Raises InputError."""
    asked, base, (teacher, chat_model) = [question.id for question in questions], trials[0].settings, model
    done = {trial.name: {each.question_id for each in _records(trial, asked) if not each.error} for trial in trials}
    owed = {name: len(asked) - len(each) for name, each in done.items()}
    if not any(owed.values()):
        return
    async with open_journal(base.run_directory.parent.parent / JOURNAL) as journal:
        fresh = set(asked) - done[BASE] - journal.questions
        models = Models.journaled(journal, caps_of(base), {"model": (teacher, chat_model)})
    rule, prompts = find_rule(base), load_prompts(base.prompts, base.style)
    recipe = resolve_recipe(base).model_copy(update={"outcome": rule.name})
    agent = find_agent(base, OfflineTeacher(), retriever, prompts, teacher.sampling)
    usage = await rehearse(spread(questions, len(asked)), recipe, agent, None, rule)
    most = sum(trial.call_budget(owed[trial.name]) for trial in trials) / trials[0].call_budget(1)
    expected = usage.shares(teacher, None, low=min(len(fresh), most), high=most) if usage else []
    some = counted(sum(map(bool, owed.values())), "trial")
    get_consent(f"{some} on {counted(len(asked), 'question')}", expected, watcher, models)


async def _delivered(journal: Path) -> Tokens:
    """All tokens delivered so far."""
    async with open_journal(journal, wanted=lambda _: False) as opened:
        return opened.delivered


# -- which trials --------------------------------------------------------------------------------------------------


def plan_trials(base: GenerateSettings, vary: Sequence[str] = ()) -> list[Trial]:
    """The base, then one trial for each value in `VARIED` that is not the base's.

    vary: settings to vary; none: all that the recipe uses. Raises InputError for others.
    """
    recipe = resolve_recipe(base)
    used = [name for name in VARIED if name not in _USED_BY or _USED_BY[name](recipe)]
    if base.steps_by_hops:  # hops decide, so that most questions would have the same steps in every trial
        used.remove("max_steps")
    for name in vary:
        if name not in used:
            user = f"recipe {base.recipe}{' with --steps-by-hops' * base.steps_by_hops}"
            why = f"{user} does not use" if name in VARIED else "tune does not vary"
            raise InputError(f"--vary: {why} {_as_flag(name)}; {choices(_as_flag(name), map(_as_flag, used))}")
    now = recipe.search.model_dump() | {
        "max_calls_per_question": recipe.search.max_calls,
        "temperature": base.agent_defaults.temperature if base.temperature is None else base.temperature,
        "max_steps": max_steps(base),
    }
    changes: list[dict[str, float]] = [{}]
    changes += [
        {name: value} for name in used if name in vary or not vary for value in VARIED[name] if value != now[name]
    ]
    return [
        Trial(base.model_copy(update={**change, "run": base.run_directory / TRIALS / trial_name(change)}), change)
        for change in changes
    ]


def trial_name(changed: Mapping[str, float]) -> str:
    """`siblings-3`; also the name of the trial's directory."""
    return "-".join(f"{_as_flag(name)}-{value:g}" for name, value in changed.items()) or BASE


def _as_flag(name: str) -> str:
    return name.replace("_", "-")


def _words(name: str, value: Any) -> list[str]:
    """A setting as a flag; a switch has no value."""
    if isinstance(value, bool):
        return [f"--{_as_flag(name)}" if value else f"--no-{_as_flag(name)}"]
    return [f"--{_as_flag(name)}", str(value)]


# -- results -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FinishedTrial:
    """A trial and its records, in question order."""

    trial: Trial
    records: Sequence[RolloutRecord]
    rules: PairingRules
    unit: Unit
    complete: bool

    def yields(self) -> list[QuestionYield]:
        return [self._yield(record) for record in self.records]

    def _yield(self, record: RolloutRecord) -> QuestionYield:
        cost = record.usage.calls if self.unit == "calls" else record.usage.cost_usd
        sure = [each.confidence or 0.0 for each in candidates(record, self.rules) if each.dropped is None]
        return QuestionYield(cost=cost or 0.0, pairs=len(sure), right=math.fsum(sure))


def _records(trial: Trial, asked: Sequence[str]) -> list[RolloutRecord]:
    """One record per tried question; the last one of a question counts."""
    rollouts = trial.settings.run_directory / ROLLOUTS
    found = {record.question_id: record for record in read_rollouts(rollouts)} if rollouts.exists() else {}
    return [found[each] for each in asked if each in found]


def _compare(tried: Sequence[_FinishedTrial], *, seed: int) -> tuple[list[TrialReport], Trial | None]:
    """The reports of all trials, and the suggested trial."""
    reports = [_report(each) for each in tried]
    if not tried[0].complete:
        return reports, None
    base, standings = ConfigurationMeasurements(tried[0].yields(), seed=seed), []
    for position, each in enumerate(tried):
        if each.complete:
            measured = ConfigurationMeasurements(each.yields(), seed=seed)
            standing = measured.standing(each.trial.name, base)
            standings.append(standing)
            compared = {"intervals": _intervals(measured, base), "worse_than_base": standing.worse}
            reports[position] = reports[position].model_copy(update=compared)
    on_frontier = pareto_frontier(standings)
    reports = [report.model_copy(update={"on_frontier": report.name in on_frontier}) for report in reports]
    suggested = suggest_trial(standings)
    return reports, next((each.trial for each in tried if each.trial.name == suggested), None)


def _report(tried: _FinishedTrial) -> TrialReport:
    records, yields = tried.records, tried.yields()
    questions = len(records)
    usages = [record.usage for record in records]
    costs = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
    pairs, right = sum(each.pairs for each in yields), math.fsum(each.right for each in yields)
    steps = [node for record in records for node in record.nodes[1:]]
    draws = sum(node.draws for node in steps)

    def mean(total: float) -> float:
        return total / questions if questions else 0.0

    return TrialReport(
        name=tried.trial.name,
        changed=dict(tried.trial.changed),
        complete=tried.complete,
        questions=questions,
        failed=sum(record.error is not None for record in records),
        failures_by_cause=dict(Counter(record.error.cause for record in records if record.error).most_common()),
        calls=mean(sum(usage.calls for usage in usages)),
        requests=mean(sum(usage.requests for usage in usages)),
        prompt_tokens=mean(sum(usage.prompt_tokens for usage in usages)),
        completion_tokens=mean(sum(usage.completion_tokens for usage in usages)),
        cost_usd=mean(math.fsum(costs)) if costs else None,
        pairs=mean(pairs),
        right_pairs=mean(right),
        questions_with_a_pair=mean(sum(each.pairs > 0 for each in yields)),
        confidence=right / pairs if pairs else None,
        cost_per_right_pair=math.fsum(each.cost for each in yields) / right if right else None,
        distinct_steps=sum(node.same_as is None for node in steps) / draws if draws else None,
    )


def _intervals(measured: ConfigurationMeasurements, base: ConfigurationMeasurements) -> dict[str, Interval95]:
    resampled = {
        "right_pairs": measured.right,
        "questions_with_a_pair": measured.share,
        "confidence": measured.confidence,
        "cost_per_right_pair": measured.cost,
        "cost_change": measured.cost_change(base),
    }
    intervals = {}
    for name, values in resampled.items():
        low, high = interval(values)
        intervals[name] = Interval95(low=_finite(low), high=_finite(high))
    return intervals


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _config(trial: Trial, given: set[str]) -> dict[str, Any]:
    """Given settings and the trial's change, as settings of generate, without secrets and without those of one run."""
    settings = trial.settings
    wanted = given - _OF_ONE_RUN | {"recipe", *trial.changed}
    shown = {name: value for name, value in shown_settings(settings).items() if name in wanted}
    if settings.extra_body:
        shown["extra_body"] = orjson.dumps(settings.extra_body).decode()
    return {name: value for name, value in shown.items() if value is not None}
