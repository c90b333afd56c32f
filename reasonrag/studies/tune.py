"""`reasonrag tune`: which recipe yields the most preference pairs for its cost, on the user's own questions.

Decides what is varied (one value of the recipe at a time), in which order, and what is reported of a trial. A trial is
a run of generate. All share one journal: a draw has the same number in every recipe, so most completions serve several
trials; a trial is billed what it would have cost alone. Does not know how a tree is searched, what makes a pair or what
is noise, nor which recipe trains the better student: confidence is relative to the teacher that continued.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference import PairingRules, RolloutRecord, candidates, read_rollouts
from preference.export.private_files import write_json
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.recipe_file import name_of_recipe, values_of
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Questions
from reasonrag.data.yaml_text import parse_changes
from reasonrag.errors import InputError
from reasonrag.exploration.explore import Given, explore
from reasonrag.exploration.plan import Plan
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import StopReason
from reasonrag.files import CONFIG, JOURNAL, ROLLOUTS, TRIALS, TUNING, only_writer
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import EndpointModel
from reasonrag.llm.journal import open_journal
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import OF_RANKS
from reasonrag.rendering import Line, Part, Table, counted, counts_text, dollars_or_unknown, percent, warned
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import needs_consent
from reasonrag.run_config import another_run_named, recorded_effort, shown_settings, versions
from reasonrag.settings import OWN_EFFORT, SETTINGS_FILE, flag_of, flags_given, resolve
from reasonrag.signatures import public_call
from reasonrag.studies.pareto import HEAD, ConfigurationMeasurements, QuestionYield, TrialReport, Unit, pareto_frontier
from reasonrag.studies.settings import NOT_OF_TUNE, TuneSettings

BASE = "base"

_OF_ONE_RUN = {"run", "limit", "max_cost", "max_calls", "max_tokens", "yes"}
"""Settings that are not part of a configuration."""


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
    calls_delivered: int
    tokens_delivered: int
    cost_delivered: float | None
    """Total cost in this directory, over all sessions."""
    stopped: StopReason | None
    warnings: list[str] = []
    """Warnings of the base run, which mostly apply to every trial."""
    versions: dict[str, str]

    @property
    def command(self) -> str:
        """The command that explores with the suggested configuration."""
        given = flags_given(GenerateSettings.model_validate(self.config))
        return shlex.join(["reasonrag", "generate", *given, "--run", "runs/main"])

    def shown(self) -> Iterator[Part]:
        """A row per trial, the suggestion, and the paths of the files."""
        money, questions = self.unit == "dollars", counted(self.questions, "question")
        title = f"{self.dataset}/{self.split}  recipe {self.recipe}  teacher {self.model}  {questions}"
        yield Table(title, [each.row(self.unit) for each in self.trials], HEAD)
        yield "completions, pairs, expected right: per question. share: of the questions that have a pair"
        unit = "dollars per 1,000 expected right pairs" if money else "completions per expected right pair"
        level = percent(COMPARISON_LEVEL)
        yield f"cost: {unit}; CI low, CI high: its {level} interval, by a bootstrap over {questions}"
        yield "*: on the Pareto frontier. worse: significantly below the base in confidence or share. ..: stopped"
        suggested = next((each for each in self.trials if each.name == self.suggested), None)
        nothing = "no suggestion: the base did not finish, or made no pair and nothing is significantly cheaper"
        yield suggested.as_suggestion if suggested else nothing
        cost = f" for {dollars_or_unknown(self.cost_delivered)}" if money else ""
        yield f"{counted(self.calls_delivered, 'completion')}{cost}, shared by the trials"
        for each in self.trials:
            if each.failed:
                yield f"{each.name}: {counted(each.failed, 'question')} failed: {counts_text(each.failures_by_cause)}"
        yield from warned(self.warnings)
        yield Line(f"wrote {Path(self.run) / TUNING}")
        if suggested and suggested.changed:
            yield Line(f"explore with it:\n{self.command}")
        if self.stopped:
            tried = sum(each.complete for each in self.trials)
            yield f"stopped after {tried:,} of {self.planned:,} trials: {self.stopped.message}"


@public_call(TuneSettings, GenerateSettings, without=NOT_OF_TUNE)
def tune(
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Tuning:
    """Try recipes on the first questions, and find the one that gives the most right pairs for its cost.

    The settings of `generate` make the base; they come from where `generate` has them, table [generate] included, which
    may hold others than those here. Caps apply to all trials and sessions together; what stopped the trials early is in
    the result, and the same call resumes them. Raises InputError, StorageError and KeyboardInterrupt as `generate`.

    Example:
        >>> tuned = reasonrag.tune(
        ...     dataset="atlas", model="offline", pilot=4, vary=["search.siblings=3,6"], run="runs/tune"
        ... )
        >>> len(tuned.trials)
        3

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
    if given := [name for name in NOT_OF_TUNE if others.get(name) not in (None, [])]:
        raise InputError(
            f"tune has no {given[0]}; --pilot says how many questions are tried, and what else generate takes may "
            f"stand in the table [generate] of {SETTINGS_FILE}"
        )
    settings = resolve(TuneSettings, "tune", own)
    base = resolve(GenerateSettings, "generate", others | {"run": settings.run, "limit": settings.pilot})
    base = base.model_copy(update={name: GenerateSettings.model_fields[name].default for name in OF_RANKS})
    of_others = [each for each in GenerateSettings.model_fields if each.startswith(("value_", "reader_"))]
    if given := [flag_of(each) for each in of_others if getattr(base, each)]:
        raise InputError(
            f"tune varies the teacher's settings only: leave out {', '.join(given)} in the environment and "
            f"in the table [generate] of {SETTINGS_FILE}"
        )
    return run_to_end(_tune(settings, base, chat_model, retriever, watcher or SilentWatcher()))


async def _tune(
    settings: TuneSettings,
    base: GenerateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
) -> Tuning:
    plan_trials(base, settings.vary)
    plan = Plan.of(base, chat_model)
    if needs_consent([*plan.models.values()], plan.budget.caps, yes=base.yes):
        raise InputError("a tune is many runs: give --max-cost DOLLARS for all of them together, or --yes")
    source, corpus = plan.find_data(watcher.say, searched=retriever is None)
    plan.say_terms(watcher)
    if plan.recipe.reward == "rank":
        watcher.say(
            "labels of a judge have no confidence, so right pairs cannot be counted: trials show what they cost and "
            "how many pairs they give, and none is suggested"
        )
    if (settings.run / CONFIG).exists():
        raise InputError(f"{settings.run} is a run directory of generate; choose another --run for the trials")
    async with AsyncExitStack() as opened:
        opened.enter_context(only_writer(settings.run))
        opened.enter_context(another_run_named(settings.run))
        if chat_model is None:
            chat_model = plan.teacher.open(opened, say=watcher.say)
        teacher = await plan.teacher.settled(chat_model, recorded_effort(settings.run / TRIALS / BASE))
        if isinstance(chat_model, EndpointModel):
            base = base.model_copy(update={"reasoning_effort": teacher.sampling.reasoning_effort or OWN_EFFORT})
        if retriever is None:
            retriever = await plan.open_retriever(corpus, opened, watcher.say, [chat_model.check])
        given = Given(chat_model, retriever=retriever, shared_journal=settings.run / JOURNAL)
        tried = await _explore(plan_trials(base, settings.vary), given, watcher)
        async with open_journal(settings.run / JOURNAL, wanted=lambda _: False) as journal:
            spent = journal.delivered
        tuning = _tuning(settings, plan, base, source.limited(base.limit), tried, spent=spent)
        write_json(settings.run / TUNING, tuning.model_dump())
    return tuning


async def _explore(trials: Sequence[Trial], given: Given, watcher: Watcher) -> _Tried:
    """Explore one trial after the other. Where the teacher fixes a parameter, no trial of it is explored."""
    found, refused = _Tried(len(trials)), set[str]()
    for number, trial in enumerate(trials, start=1):
        if fixed := refused & {key.rpartition(".")[2] for key in trial.changed}:
            found.warnings.append(f"{trial.name} is not tried: the teacher does not accept {', '.join(fixed)}")
            watcher.say(found.warnings[-1])
            continue
        watcher.say(f"trial {number} of {len(trials)}: {trial.name}")
        summary = await explore(trial.settings, watcher, given)
        refused |= {each for parameters in summary.refused_parameters.values() for each in parameters}
        if not found.trials:
            found.warnings += dict.fromkeys(summary.warnings)
        found.trials.append(trial)
        if summary.stopped:
            found.stopped = summary.stopped
            break
    return found


# -- which trials --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A run of generate. changed: the value of the recipe that is not the base's, by its key; none: the base."""

    settings: GenerateSettings
    changed: Mapping[str, Any]

    @classmethod
    def of(cls, home: Path, settings: GenerateSettings, changed: Mapping[str, Any]) -> Trial:
        trial = cls(settings, changed)
        return cls(settings.model_copy(update={"run": home / TRIALS / trial.name}), changed)

    @property
    def name(self) -> str:
        """`siblings-3`; also the name of the trial's directory."""
        last = {key.rpartition(".")[2].replace("_", "-"): value for key, value in self.changed.items()}
        shown = {name: f"{value:g}" if isinstance(value, int | float) else value for name, value in last.items()}
        return "-".join(f"{name}-{value}" for name, value in shown.items()) or BASE

    def records(self, asked: Questions) -> list[RolloutRecord]:
        """One record per tried question; the last one of a question counts."""
        rollouts = self.settings.run_directory / ROLLOUTS
        found = {record.question_id: record for record in read_rollouts(rollouts)} if rollouts.exists() else {}
        return [found[each.id] for each in asked if each.id in found]


def plan_trials(base: GenerateSettings, vary: Sequence[str]) -> list[Trial]:
    """The base, then one trial for each value that makes another recipe.

    vary: `KEY=VALUE,VALUE,..`. Raises InputError without any, and for what the recipe may not have.
    """
    if not vary:
        raise InputError("give values of the recipe to try: --vary KEY=VALUE,VALUE, as in --vary search.siblings=3,4,6")
    recipes, trials = [values_of(base.resolved_recipe)], [Trial.of(base.run_directory, base, {})]
    for word in vary:
        key, equals, texts = word.partition("=")
        if not equals or not all(texts.split(",")):
            raise InputError(f"--vary {word}: it takes KEY=VALUE,VALUE, as in --vary search.siblings=3,4,6")
        for text in texts.split(","):
            [value], changed = parse_changes([f"{key}={text}"]).values(), _changed(base, key, text)
            if (recipe := values_of(changed.resolved_recipe)) not in recipes:
                recipes.append(recipe)
                trials.append(Trial.of(base.run_directory, changed, {key: value}))
    return trials


def _changed(base: GenerateSettings, key: str, text: str) -> GenerateSettings:
    """The base with one value of its recipe changed, also where a setting of its own says it."""
    others = [word for word in base.set if word.partition("=")[0] != key]
    name = key.removeprefix("agent.")
    own = {name: None} if name in ("max_steps", "temperature", "outcome") else {}
    return base.model_copy(update={"set": [*others, f"{key}={text}"], **own})


# -- results -------------------------------------------------------------------------------------------------------


@dataclass
class _Tried:
    """The trials that were explored, of so many planned ones, what stopped them, and the warnings of the base, with
    what is not tried and why. All but the last one are complete; so is that unless it was stopped."""

    planned: int
    trials: list[Trial] = field(default_factory=list)
    stopped: StopReason | None = None
    warnings: list[str] = field(default_factory=list)


def _tuning(
    settings: TuneSettings, plan: Plan, base: GenerateSettings, asked: Questions, tried: _Tried, *, spent: Tokens
) -> Tuning:
    price = plan.teacher.price
    unit: Unit = "dollars" if price and price.cost(1, 1) else "calls"
    records = [trial.records(asked) for trial in tried.trials]
    reports = _compared(tried, records, settings.rules, unit, seed=base.seed)
    suggested = suggest_trial(reports)
    config = next((_config(each.settings) for each in tried.trials if each.name == suggested), {})
    return Tuning(
        run=str(settings.run),
        model=plan.teacher.name,
        recipe=name_of_recipe(base.recipe),
        dataset=asked.source.dataset,
        split=asked.source.split,
        seed=base.seed,
        questions=len(asked),
        rules=settings.rules.flags,
        unit=unit,
        planned=tried.planned,
        trials=reports,
        suggested=suggested,
        config=config,
        calls_delivered=spent.calls,
        tokens_delivered=spent.prompt + spent.completion,
        cost_delivered=None if price is None else spent.cost(price),
        stopped=tried.stopped,
        warnings=tried.warnings,
        versions=versions(),
    )


def _compared(
    tried: _Tried, records: Sequence[Sequence[RolloutRecord]], rules: PairingRules, unit: Unit, *, seed: int
) -> list[TrialReport]:
    """The report of every trial; those that are complete are compared with the base."""
    found, base = list[TrialReport](), None
    for trial, of_trial in zip(tried.trials, records, strict=True):
        yields = [_yield(record, rules, unit) for record in of_trial]
        report = _report(trial, of_trial, yields)
        if trial is not tried.trials[-1] or not tried.stopped:
            measured = ConfigurationMeasurements(yields, seed=seed)
            base = base or measured
            compared = {"intervals": measured.intervals(base), "worse_than_base": measured.worse_than(base)}
            report = report.model_copy(update={"complete": True, **compared})
        found.append(report)
    frontier = pareto_frontier([each for each in found if each.complete])
    return [each.model_copy(update={"on_frontier": each.name in frontier}) for each in found]


def suggest_trial(trials: Sequence[TrialReport]) -> str | None:
    """The base, which is the first, unless others are cheaper and not worse by more than noise: of these the cheapest.
    Trials that are not complete do not count.

    The best of many that differ by chance only is always cheaper than the base; it is no reason to leave it. None if
    that would be a base that makes no pairs, or if there is none.
    """
    better = [each for each in trials if each.complete and each.cheaper_than_base and not each.worse_than_base]
    found = min(better or [each for each in trials[:1] if each.complete], key=lambda each: each.rank, default=None)
    return found.name if found and found.cost_per_right_pair is not None else None


def _yield(record: RolloutRecord, rules: PairingRules, unit: Unit) -> QuestionYield:
    cost = record.usage.calls if unit == "calls" else record.usage.cost_usd
    sure = [each.pair.confidence or 0.0 for each in candidates(record, rules) if each.dropped is None]
    return QuestionYield(cost=cost or 0.0, pairs=len(sure), right=math.fsum(sure))


def _report(trial: Trial, records: Sequence[RolloutRecord], yields: Sequence[QuestionYield]) -> TrialReport:
    """Of what was tried, not compared with anything."""
    questions = max(1, len(records))
    costs = [record.usage.cost_usd for record in records if record.usage.cost_usd is not None]
    pairs, right = sum(each.pairs for each in yields), math.fsum(each.right for each in yields)
    failed = Counter(record.error.cause for record in records if record.error)
    return TrialReport(
        name=trial.name,
        changed=dict(trial.changed),
        complete=False,
        questions=len(records),
        failed=failed.total(),
        failures_by_cause=dict(failed.most_common()),
        calls=sum(record.usage.calls for record in records) / questions,
        cost_usd=math.fsum(costs) / questions if costs else None,
        pairs=pairs / questions,
        right_pairs=right / questions,
        questions_with_a_pair=sum(each.pairs > 0 for each in yields) / questions,
        confidence=right / pairs if pairs else None,
        cost_per_right_pair=math.fsum(each.cost for each in yields) / right if right else None,
    )


def _config(settings: GenerateSettings) -> dict[str, Any]:
    """Given settings with the trial's change, without secrets and without those of one run."""
    wanted = settings.model_fields_set - _OF_ONE_RUN | {"recipe", "set"}
    return {name: value for name, value in shown_settings(settings).items() if name in wanted and value is not None}
