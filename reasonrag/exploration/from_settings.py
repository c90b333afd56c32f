"""From settings to the models, the rule of outcomes and the configuration of a run. Does not know how they are used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcts import SearchConfig
from preference import OutcomeName
from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OutcomeFunction, OutcomeRule, answers_rehearsed, name_of_function
from reasonrag.agent.prompting import Prompts, renderer_hash, style_identity
from reasonrag.data.datasets import check_names
from reasonrag.data.questions import QuestionSource, criteria
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.exploration.explorer import RunIdentity
from reasonrag.exploration.settings import DEFAULT_TEACHER, GenerateSettings
from reasonrag.files import read_small_text, reading
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, VALUE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec, model_name
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import STUDENT
from reasonrag.llm.prices import SELF_HOSTED, is_sold_at
from reasonrag.llm.settings import LimitSettings, ModelSettings
from reasonrag.retrieval.passage_length import order_recorded, reading_identity, with_passages_cut
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run_config import RunConfig, shown_settings, shown_urls


def find_agent(
    settings: GenerateSettings, model: ChatModel, retriever: Retriever, prompts: Prompts, sampling: Sampling
) -> Agent:
    reads = with_passages_cut(retriever, settings.max_passage_chars)
    return Agent(
        model,
        reads,
        prompts,
        sampling,
        settings.top_k,
        settings.resolved_recipe.agent.max_steps,
        settings.seed,
        passage_order=settings.resolved_recipe.agent.passage_order,
        steps_by_hops=settings.steps_by_hops,
    )


def find_models(
    settings: GenerateSettings, chat_model: ChatModel | None = None, value_chat_model: ChatModel | None = None
) -> tuple[ModelSpec, ModelSpec | None]:
    """The teacher, and the value model if another model continues its steps. Raises InputError for inconsistent
    settings."""
    name = chat_model.name if chat_model else teacher_name(settings)
    teacher = teacher_spec(settings, name)
    if settings.value_model is None and value_chat_model is None:
        for flag in value_flags(settings):
            raise InputError(f"{flag} needs a value model: give --value-model, or leave it out")
        return teacher, None
    recipe = settings.resolved_recipe
    if recipe.search.valuation != "continuation":
        raise InputError(
            f"recipe {recipe.name} samples no continuations: leave out --value-model, or choose another --recipe"
        )
    value_name = value_chat_model.name if value_chat_model else value_model_name(settings)
    if value_name == name:
        raise InputError(f"--value-model {value_name} is the teacher, which continues by default; leave it out")
    return teacher, value_spec(settings, value_name)


def teacher_spec(settings: GenerateSettings, name: str) -> ModelSpec:
    """The model that the settings name, or another one in its place: `name` is the one its answers go by."""
    sampled = settings.resolved_recipe.agent
    model = settings.part(ModelSettings).model_copy(update={"temperature": sampled.temperature})
    return ModelSpec.of(model, settings.part(LimitSettings), name, top_p=sampled.top_p, parts=settings.parts)


def teacher_name(settings: GenerateSettings) -> str:
    """The teacher; by default offline for atlas, and GPT-4o where there is a key. Raises InputError without either."""
    if lacks_teacher(settings):
        raise InputError(
            f"no teacher: set {KEY_VARIABLE} to use {DEFAULT_TEACHER}, or give --model NAME and --base-url URL, or "
            "--model offline (extractive, free)"
        )
    of_atlas = settings.part(QuestionSettings).of_atlas
    known = settings.model or of_atlas
    return model_name(settings.part(ModelSettings), of_atlas=of_atlas) if known else DEFAULT_TEACHER


def lacks_teacher(settings: GenerateSettings) -> bool:
    """Whether the settings name no teacher and the default one has no key. Raises InputError for an unknown data
    set."""
    questions = settings.part(QuestionSettings)
    check_names(questions)
    return not (settings.model or questions.of_atlas or os.environ.get(KEY_VARIABLE))


def value_flags(settings: GenerateSettings) -> list[str]:
    """The flags of all value model settings that were set, on the command line or elsewhere."""
    names = (name for name in GenerateSettings.model_fields if name.startswith("value_"))
    return [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) not in (None, [])]


def value_spec(settings: GenerateSettings, name: str) -> ModelSpec:
    """The value model, at the teacher's address unless it has its own. There, an unlisted model costs nothing."""
    value = settings.value
    spec = teacher_spec(settings, name).second(value, name, name_flag="--value-model", key_variable=VALUE_KEY_VARIABLE)
    free = spec.price is None and value.base_url and not is_sold_at(value.base_url)
    return replace(spec, price=SELF_HOSTED) if free else spec


def value_model_name(settings: GenerateSettings) -> str:
    """The name recorded with its answers; the offline teacher has different names in both roles."""
    in_process = settings.value_model in (OFFLINE, STUDENT) and not settings.value_base_url
    return STUDENT if in_process else settings.value_model or ""


def judged_by_offline(settings: GenerateSettings, teacher: ModelSpec, rule: OutcomeRule) -> list[str]:
    """A warning where the offline teacher judges."""
    reward = settings.resolved_recipe.reward
    return answers_rehearsed(teacher.name, rule.name, support=rule.support, reward=reward)


def call_budget(search: SearchConfig, *, path: float) -> float:
    """Completions in one question's whole budget; without one, those of all simulations, each with new siblings.

    path: completions of a continuation.
    """
    if search.max_calls is not None:
        return search.max_calls
    siblings = search.siblings_at_once or search.siblings
    valued = 1 if search.value_one or search.valuation == "rank" else siblings
    value = path * search.continuations if search.valuation == "continuation" else 1
    return search.simulations * (siblings + valued * value)


def find_rule(settings: GenerateSettings, function: OutcomeFunction | None = None) -> OutcomeRule:
    """The outcome rule of the settings. Raises InputError for inconsistent settings and unreadable files."""
    recipe = settings.resolved_recipe
    name = recipe.outcome
    if recipe.support == "judge" and function:
        raise InputError("support judge goes with outcome evident_f1, not with a function; leave it out of --set")
    if settings.rubric is not None and (function or name != "rubric"):
        raise InputError(f"--rubric {settings.rubric} goes with --outcome rubric; add that, or leave it out")
    if function is not None:
        return OutcomeRule(name_of_function(function), function=function)
    rubric = () if settings.rubric is None else _read_rubric(settings.rubric)
    return OutcomeRule(name, rubric, support=recipe.support)


def _read_rubric(path: Path) -> tuple[str, ...]:
    try:
        with reading(f"the rubric {path}"):
            found = criteria(read_small_text(path))
    except UnicodeDecodeError as error:
        raise InputError(f"the rubric {path} is not UTF-8 text: {error}") from error
    if not found:
        raise InputError(f"the rubric {path} is empty; write what an answer must do, one criterion per line")
    return found


def function_or_name(
    outcome: OutcomeName | OutcomeFunction | None,
) -> tuple[OutcomeFunction | None, dict[str, OutcomeName | None]]:
    """A function given as `outcome`, and the setting that a name is; a missing one is None."""
    return (outcome, {}) if callable(outcome) else (None, {"outcome": outcome})


def run_identity(
    settings: GenerateSettings,
    source: QuestionSource,
    corpus: Path | None,
    retriever: Retriever,
    prompts: Prompts,
    *,
    rule: OutcomeRule,
    teacher: ModelSpec,
    student: ModelSpec | None,
) -> tuple[RunIdentity, RunConfig]:
    """The run's fields in every record, and its configuration."""
    recipe = settings.resolved_recipe.model_copy(update={"outcome": rule.name})
    decides_answers = {
        **source.identity,
        "retriever": retriever.identity,
        "top_k": settings.top_k,
        "prompts": prompts.hash_with(*rule.prompts),
        "model": teacher.name,
        "sampling": teacher.sampling.shown,
        "recipe": recipe.model_dump(mode="json"),
        "max_steps": recipe.agent.max_steps,
        "seed": settings.seed,
        **reading_identity(settings.max_passage_chars, order_recorded(recipe.agent.passage_order)),
        **style_identity(prompts.style),
    } | rule.identity
    if settings.steps_by_hops:
        decides_answers["steps_by_hops"] = True
    if student:
        decides_answers["value_model"] = {"name": student.name, "sampling": student.sampling.shown}
    config = RunConfig.of(decides_answers, _operational(settings, source, corpus))
    identity = RunIdentity(
        dataset=source.dataset,
        split=source.split,
        config_hash=config.config_hash,
        seed=settings.seed,
        recipe=recipe,
        renderer=renderer_hash(prompts),
        price=teacher.price,
        value_price=student.price if student else None,
    )
    return identity, config


def _operational(settings: GenerateSettings, source: QuestionSource, corpus: Path | None) -> dict[str, Any]:
    """Settings that may change between sessions of a run."""
    base_urls = settings.base_url or [os.environ.get("OPENAI_BASE_URL", "")]
    return {
        "limit": settings.limit,
        "concurrency": settings.concurrency,
        "base_url": shown_urls(base_urls),
        "value_base_url": shown_urls(settings.value_base_url),
        "rpm": settings.rpm,
        "tpm": settings.tpm,
        "abort_degenerate": settings.abort_degenerate,
        "caps": {"cost": settings.max_cost, "calls": settings.max_calls, "tokens": settings.max_tokens},
        "questions": source.places,
        "hub_revision": source.revision,
        "corpus": None if corpus is None else str(corpus),
        "settings": shown_settings(settings),
    }
