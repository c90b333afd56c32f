"""`reasonrag tune`: which recipe yields the most preference pairs for its cost, on the user's own questions.

Decides what is varied (one value of the recipe at a time), in which order, and what is reported of a trial. A trial is
a run of generate. All share one journal: a draw has the same number in every recipe, so most completions serve several
trials; a trial is billed what it would have cost alone. Does not know how a tree is searched, what makes a pair or what
is noise, nor which recipe trains the better student: confidence is relative to the teacher that continued.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from preference import PairingRules, candidates, read_rollouts
from preference.export.private_files import write_json
from preference.records import shared_fields
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.recipe_file import values_of
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Questions
from reasonrag.data.yaml_text import parse_changes
from reasonrag.errors import InputError
from reasonrag.exploration.explore import Given, explore
from reasonrag.exploration.plan import Plan
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason
from reasonrag.files import CONFIG, JOURNAL, ROLLOUTS, TRIALS, TUNING
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import EndpointModel
from reasonrag.llm.journal import Journal
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import OF_RANKS
from reasonrag.rendering import Line, Part, Shown, Table, counted, counts_text, dollars_or_unknown, percent, warned
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import needs_consent
from reasonrag.run.engine import claimed
from reasonrag.run_config import recorded_effort, shown_settings
from reasonrag.settings import OWN_EFFORT, SETTINGS_FILE, flags_given, resolve
from reasonrag.signatures import public_call
from reasonrag.studies.pareto import HEAD, QuestionYield, TrialReport, Unit, report_trials, suggest_trial
from reasonrag.studies.settings import NOT_OF_TUNE, TuneSettings

BASE = "base"
_OF_ONE_RUN = {"run", "limit", "max_cost", "max_calls", "max_tokens", "yes"}
"""Settings that are not part of a configuration."""
_HOW = "KEY=VALUE,VALUE, as in --vary search.siblings=3,4,6"


class Tuning(BaseModel, Shown):
    """The result of all trials, and the content of tuning.json. unit: of `cost_per_right_pair`; calls if the model has
    no price or is free. planned: trials, those not reached included. command: that explores with the suggestion; null
    without one. cost_delivered: dollars in this directory, over all sessions."""

    run: str
    model: str
    recipe: str
    dataset: str
    split: str
    seed: int
    questions: int
    min_confidence: float
    unit: Unit
    planned: int
    trials: list[TrialReport]
    suggested: str | None
    command: str | None
    calls_delivered: int
    cost_delivered: float | None
    stopped: StopReason | None
    warnings: list[str] = []
    versions: dict[str, str]

    def shown(self) -> Iterator[Part]:
        """A row per trial, the suggestion, and the paths of the files."""
        money, questions = self.unit == "dollars", counted(self.questions, "question")
        title = f"{self.dataset}/{self.split}  recipe {self.recipe}  teacher {self.model}  {questions}"
        yield from warned(self.warnings)
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
            `complete(request)` and `check()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
    """
    retriever, named = object_or_name(retriever)
    others = flags | named
    own = {name: others.pop(name) for name in TuneSettings.model_fields if name in others}
    settings = resolve(TuneSettings, "tune", own)
    base = resolve(GenerateSettings, "generate", others | {"run": settings.run, "limit": settings.pilot})
    of_others = {name for name in NOT_OF_TUNE if name.startswith(("value_", "reader_")) and getattr(base, name)}
    if given := [name for name in NOT_OF_TUNE if name in of_others or others.get(name) not in (None, [])]:
        raise InputError(
            f"tune has no {', '.join(given)}: it varies the teacher's settings only, and --pilot says how many "
            f"questions are tried. Leave it out, another model's settings in the environment and {SETTINGS_FILE}, too"
        )
    base = base.model_copy(update={name: GenerateSettings.model_fields[name].default for name in OF_RANKS})
    shared = Given(chat_model, retriever=retriever, shared_journal=settings.run / JOURNAL)
    return run_to_end(_tune(settings, base, shared, watcher or SilentWatcher()))


async def _tune(settings: TuneSettings, base: GenerateSettings, given: Given, watcher: Watcher) -> Tuning:
    plan_trials(base, settings.vary)
    plan, run = Plan.of(base, given.chat_model), settings.run
    if needs_consent([plan.teacher], plan.budget.caps, yes=base.yes):
        raise InputError("a tune is many runs: give --max-cost DOLLARS for all of them together, or --yes")
    source, corpus = plan.find_data(watcher.say, searched=given.retriever is None)
    plan.say_terms(watcher)
    if plan.recipe.reward == "rank":
        watcher.say("labels of a judge have no confidence: right pairs are not counted, and none is suggested")
    if (run / CONFIG).exists():
        raise InputError(f"{run} is a run directory of generate; choose another --run for the trials")
    async with AsyncExitStack() as opened:
        opened.enter_context(claimed(run))
        model = given.chat_model or plan.teacher.open(opened, say=watcher.say)
        teacher = await plan.teacher.settled(model, recorded_effort(run / TRIALS / BASE))
        if isinstance(model, EndpointModel):
            base = base.model_copy(update={"reasoning_effort": teacher.sampling.reasoning_effort or OWN_EFFORT})
        retriever = given.retriever or await plan.open_retriever(corpus, opened, watcher.say, [model.check])
        trials, given = plan_trials(base, settings.vary), replace(given, chat_model=model, retriever=retriever)
        tried, skipped = await _explore(trials, given, watcher)
        of_base, last = tried[0][1], tried[-1][1]
        unit: Unit = "dollars" if teacher.price and teacher.price.cost(1, 1) else "calls"
        asked, rules = source.limited(base.limit), PairingRules(min_confidence=settings.min_confidence)
        yields = [(trial.name, trial.changed, _yields(trial, asked, rules, unit)) for trial, _ in tried]
        reports = report_trials(yields, seed=base.seed, stopped=last.stopped is not None)
        suggested = suggest_trial(reports)
        async with Journal(run / JOURNAL, wanted=lambda _: False) as journal:
            calls = journal.delivered.calls
        own: dict[str, Any] = {
            "run": str(run),
            "min_confidence": settings.min_confidence,
            "unit": unit,
            "planned": len(trials),
            "trials": reports,
            "suggested": suggested,
            "command": next((_command(trial.settings) for trial, _ in tried if trial.name == suggested), None),
            "calls_delivered": calls,
            "cost_delivered": last.cost_usd,
            "stopped": last.stopped,
            "warnings": [*dict.fromkeys(of_base.warnings), *skipped],
        }
        tuning = Tuning(**shared_fields(of_base, Tuning) | own)
        write_json(run / TUNING, tuning.model_dump())
    return tuning


async def _explore(
    trials: Sequence[Trial], given: Given, watcher: Watcher
) -> tuple[list[tuple[Trial, RunSummary]], list[str]]:
    """Explore one trial after the other, to the first that is stopped. Where the teacher fixes a parameter, its trials
    would differ from the base by noise alone: which are skipped, and why, is returned last."""
    tried, skipped, refused = list[tuple[Trial, RunSummary]](), list[str](), set[str]()
    for number, trial in enumerate(trials, start=1):
        if fixed := refused & {key.rpartition(".")[2] for key in trial.changed}:
            skipped.append(f"{trial.name} is not tried: the teacher does not accept {', '.join(fixed)}")
            watcher.say(skipped[-1])
            continue
        watcher.say(f"trial {number} of {len(trials)}: {trial.name}")
        summary = await explore(trial.settings, watcher, given)
        tried.append((trial, summary))
        refused.update(*summary.refused_parameters.values())
        if summary.stopped:
            break
    return tried, skipped


class Trial(NamedTuple):
    """A run of generate, in a directory of its name. changed: the value that differs from the base's recipe, by key."""

    name: str
    settings: GenerateSettings
    changed: Mapping[str, Any]


def plan_trials(base: GenerateSettings, vary: Sequence[str]) -> list[Trial]:
    """The base, then one trial for each value that makes another recipe.

    vary: `KEY=VALUE,VALUE,..`. Raises InputError without any, and for what the recipe may not have.
    """
    if not vary:
        raise InputError(f"give values of the recipe to try: --vary {_HOW}")
    home = base.run_directory / TRIALS
    recipes = [values_of(base.resolved_recipe)]
    trials = [Trial(BASE, base.model_copy(update={"run": home / BASE}), {})]
    for word in vary:
        key, equals, texts = word.partition("=")
        if not equals or not all(texts.split(",")):
            raise InputError(f"--vary {word}: it takes {_HOW}")
        for text in texts.split(","):
            [value], changed = parse_changes([f"{key}={text}"]).values(), _changed(base, key, text)
            if (recipe := values_of(changed.resolved_recipe)) not in recipes:
                shown = f"{value:g}" if isinstance(value, int | float) else value
                name = f"{key.rpartition('.')[2].replace('_', '-')}-{shown}"
                recipes.append(recipe)
                trials.append(Trial(name, changed.model_copy(update={"run": home / name}), {key: value}))
    return trials


def _changed(base: GenerateSettings, key: str, text: str) -> GenerateSettings:
    """The base with one value of its recipe changed, also where a setting of its own says it."""
    others = [word for word in base.set if word.partition("=")[0] != key]
    name = key.removeprefix("agent.")
    own = {name: None} if name in ("max_steps", "temperature", "outcome") else {}
    return base.model_copy(update={"set": [*others, f"{key}={text}"], **own})


def _command(settings: GenerateSettings) -> str:
    """The command that explores with these settings, without secrets."""
    given = flags_given(GenerateSettings.model_validate(shown_settings(settings)), without=_OF_ONE_RUN)
    return shlex.join(["reasonrag", "generate", *given, "--run", "runs/main"])


def _yields(trial: Trial, asked: Questions, rules: PairingRules, unit: Unit) -> list[QuestionYield]:
    """Of the tried questions among those that are asked now: a larger pilot has left others."""
    records = {record.question_id: record for record in read_rollouts(trial.settings.run_directory / ROLLOUTS)}
    found = []
    for record in (records[each.id] for each in asked if each.id in records):
        sure = [each.pair.confidence or 0.0 for each in candidates(record, rules) if each.dropped is None]
        cost = record.usage.calls if unit == "calls" else record.usage.cost_usd or 0.0
        failure = record.error.cause if record.error else None
        found.append(QuestionYield(record.usage.calls, cost, len(sure), sum(sure), failure))
    return found
