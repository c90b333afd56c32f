"""Rebuilds the parts of a run from its config.json and the flags of `calibrate`: the model that continues its steps,
the agent, and the outcome rule.

Decides which parts may have moved or changed since the run, and which must be the same. Does not know what is valued.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from preference.records import first_error
from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS, OutcomeFunction, OutcomeRule
from reasonrag.agent.prompting import load_prompts
from reasonrag.data.compressed import is_on_the_hub
from reasonrag.errors import InputError
from reasonrag.exploration.from_settings import find_agent, teacher_spec, value_model_name, value_spec
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import CONFIG
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, VALUE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.llm.settings import BudgetSettings
from reasonrag.progress import Watcher
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import BEST_FIRST, RetrievalSettings
from reasonrag.run_config import OTHER_PROMPTS, Operational, RecordedRecipe, RunConfig, read_config
from reasonrag.studies.settings import CalibrateSettings


@dataclass(frozen=True)
class Injected:
    """Objects that the caller passed instead of settings."""

    chat_model: ChatModel | None
    retriever: Retriever | None
    function: OutcomeFunction | None
    watcher: Watcher


@dataclass(frozen=True)
class RunParts:
    """The parts that continue the steps of a run.

    label_model: the one whose continuations made the labels. model: the one that continues now. yes: consent to its
    cost. agent_of: the run's agent, with some model. rule, recipe: how answers are valued, and which count.
    """

    label_model: str
    model: ModelSpec
    caps: Caps
    yes: bool
    agent_of: Callable[[ChatModel], Agent]
    rule: OutcomeRule
    recipe: RecordedRecipe


def made_with(run: Path) -> RunConfig:
    """The configuration of the run. Raises InputError naming a key that cannot be read, or is needed and missing."""
    made = read_config(run / CONFIG)
    needed = {"config_hash": made.config_hash}
    if not made.decides_answers.imported:
        decides = made.decides_answers
        needed |= {f"decides_answers.{name}": getattr(decides, name) for name in ("model", "retriever", "prompts")}
    missing = next((name for name, value in needed.items() if not value), None)
    if missing:
        raise InputError(
            f"{run / CONFIG} is not a configuration of reasonrag: {missing} is missing. "
            "Give a run directory of reasonrag generate"
        )
    return made


async def find_parts(
    run: Path, made: RunConfig, given: CalibrateSettings, caller: Injected, opened: AsyncExitStack
) -> RunParts:
    """The parts of a run. Raises InputError if one is missing or differs from the run's."""
    decides = made.decides_answers
    continuing = _who_continues(run, made, given, caller.chat_model)
    rule = _find_rule(run, made, caller.function, model=continuing.model)
    caps = Caps.of(given.part(BudgetSettings))
    check_prices(caller.watcher.say, continuing.model, given=given.price, capped=caps.cost is not None)
    prompts = load_prompts(continuing.settings.prompts, continuing.settings.style)
    if prompts.hash_with(*rule.prompts) != decides.prompts:
        raise InputError(f"{run} was made with other prompts: {OTHER_PROMPTS}")
    settings = continuing.settings
    retriever = caller.retriever or await open_retriever(
        settings.part(RetrievalSettings),
        continuing.corpus,
        opened,
        named=bool(settings.corpus),
        top_k=settings.top_k,
        say=caller.watcher.say,
    )
    if retriever.identity != decides.retriever:
        raise InputError(
            f"{run} was made with the index {decides.retriever}, this one is {retriever.identity}: "
            "give the run's by --index, or its corpus by --corpus"
        )
    agent_of = partial(
        find_agent, continuing.settings, retriever=retriever, prompts=prompts, sampling=continuing.model.sampling
    )
    label_model = decides.student or decides.model or "unknown"
    return RunParts(label_model, continuing.model, caps, given.yes, agent_of, rule, decides.recipe)


@dataclass(frozen=True)
class _Continuing:
    """The model that continues, with the run's settings and corpus after the flags."""

    settings: GenerateSettings
    model: ModelSpec
    corpus: Path | None


def _who_continues(run: Path, made: RunConfig, given: CalibrateSettings, chat_model: ChatModel | None) -> _Continuing:
    """The model that continued in the run, unless another one is given."""
    saved, corpus = _saved_settings(run, made, given)
    teacher, student = made.decides_answers.model, made.decides_answers.student
    wanted = chat_model.name if chat_model else given.model or student or teacher
    if wanted == teacher:
        moved = {"base_url": given.base_url, "price": given.price}
        settings = saved.model_copy(update={"model": wanted} | _given(moved))
        return _Continuing(settings, teacher_spec(settings, wanted), corpus)
    own: dict[str, Any] = {
        "value_base_url": given.base_url,
        "value_extra_body": None,
        "price": given.price or saved.price,
    }
    settings = saved.model_copy(update={"value_model": wanted} | (_given(own) if wanted == student else own))
    model = value_spec(settings, wanted if chat_model else value_model_name(settings))
    if model.price is SELF_HOSTED and (given.base_url or wanted != student):
        model = replace(model, price=None)  # only at the address it had in the run is it known to be free
    key_variable = VALUE_KEY_VARIABLE if wanted == student and saved.value_base_url else KEY_VARIABLE
    return _Continuing(settings, replace(model, flags="--", name_flag="--model", key_variable=key_variable), corpus)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given."""
    return {name: value for name, value in flags.items() if value is not None and value != []}


def _saved_settings(run: Path, made: RunConfig, given: CalibrateSettings) -> tuple[GenerateSettings, Path | None]:
    """The run's settings with the new places of moved files, and its corpus."""
    operational = made.operational or Operational()
    if made.decides_answers.imported:
        raise InputError(
            f"{run} was imported: the model and corpus of its steps are unknown, so they cannot be continued"
        )
    if not operational.settings:
        raise InputError(f"{run / CONFIG} lacks operational.settings, as published runs do: nothing can be continued")
    try:
        saved = GenerateSettings.model_validate(operational.settings | {"run": run})
    except ValidationError as error:
        raise InputError(
            f"{run / CONFIG}: operational.settings: {first_error(error)}. Restore the file, or make the run again "
            "if another version of reasonrag made it"
        ) from error
    corpus = Path(operational.corpus) if operational.corpus else None
    decides = made.decides_answers  # what was a default then may be another one now
    changed: dict[str, Any] = {"concurrency": given.concurrency, "passage_order": decides.passage_order or BEST_FIRST}
    changed["reasoning_effort"] = decides.reasoning_effort
    changed |= {"recipe": GenerateSettings.model_fields["recipe"].default, "set": []}  # its file may be gone
    changed |= {name: decides.sampling.get(name, getattr(saved, name)) for name in ("temperature", "top_p")}
    changed["max_steps"] = decides.max_steps or saved.max_steps
    if not saved.base_url and made.decides_answers.model != OFFLINE:
        changed["base_url"] = operational.base_url  # the one OPENAI_BASE_URL gave
    if not saved.value_base_url:
        changed["value_base_url"] = operational.value_base_url
    if given.prompts:
        changed["prompts"] = given.prompts
    if given.corpus or given.index:
        corpus = given.corpus
        changed |= {"corpus": given.corpus, "index": given.index}
        if saved.is_remote:
            changed["retriever"] = None
    elif corpus and not (corpus.exists() or is_on_the_hub(corpus) or saved.is_remote):
        raise InputError(f"the corpus of the run, {corpus}, no longer exists: give --corpus or --index")
    return saved.model_copy(update=changed), corpus


def _find_rule(run: Path, made: RunConfig, function: OutcomeFunction | None, *, model: ModelSpec) -> OutcomeRule:
    """The run's outcome rule. Raises InputError if it cannot be applied again."""
    name = made.decides_answers.recipe.outcome
    rule = OutcomeRule(name, function=function, support=made.decides_answers.recipe.support)
    if rule.asks_model and model.recorded_as is not None:
        teacher = made.decides_answers.model
        raise InputError(
            f"the answers of {run} were judged by its teacher, {teacher}, and calibrate asks one model only: "
            f"give --model {teacher}, which then continues and judges"
        )
    if rule.identity.get("outcome_rule") != made.decides_answers.outcome_rule:
        raise InputError(
            f"the answers of {run} were valued by another rule of {name} than this version of reasonrag has, so fresh "
            "answers say nothing of its labels: calibrate it with the version that made it, or generate it again"
        )
    known = rule.judged or name in OF_GOLDEN_ANSWERS
    if known != (function is None) or (function and getattr(function, "__name__", "") != name):
        how = "leave out outcome" if known else f"call reasonrag.calibrate({str(run)!r}, outcome={name}, ..)"
        raise InputError(f"the outcome of {run} is {'' if known else 'the function '}{name}: {how}")
    return rule
