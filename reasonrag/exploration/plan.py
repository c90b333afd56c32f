"""What a run of `generate` explores, and with what: the records of its settings, held against each other.

Decides which settings exclude each other, and what `config_hash` covers. Knows neither searches nor sessions.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from mcts import Recipe
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.outcomes import OutcomeFunction, OutcomeRule, answers_rehearsed, name_of_function
from reasonrag.agent.prompting import Prompts, load_prompts, style_identity
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.agent.reader import find_reader
from reasonrag.agent.settings import AgentSettings
from reasonrag.data.datasets import check_names, find_data
from reasonrag.data.questions import QuestionFile, read_rubric
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.exploration.explorer import READER, TEACHER, VALUE_MODEL, RunIdentity
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, VALUE_KEY_VARIABLE
from reasonrag.llm.hermes import check_notation
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import STUDENT
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.llm.settings import DEFAULT_TEACHER, BudgetSettings, LimitSettings, ModelSettings
from reasonrag.progress import Watcher, warn_all
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.passage_length import order_recorded, reading_identity, with_passages_cut
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import ReadingSettings, RetrievalSettings
from reasonrag.run.engine import Budget
from reasonrag.run_config import RunConfig, shown_settings, shown_urls
from reasonrag.settings import flag_of


@dataclass(frozen=True)
class Plan:
    """See the module's docstring.

    recipe: with the outcome of the rule. others: the models beside the teacher, by their roles.
    budget: of this process. prices: as `--price` gives them.
    """

    recipe: Recipe
    rule: OutcomeRule
    teacher: ModelSpec
    others: Mapping[str, ModelSpec]
    questions: QuestionSettings
    retrieval: RetrievalSettings
    reading: ReadingSettings
    prompts: Prompts
    seed: int
    budget: Budget
    prices: Sequence[str]

    @classmethod
    def of(
        cls,
        settings: GenerateSettings,
        chat_model: ChatModel | None = None,
        value_chat_model: ChatModel | None = None,
        function: OutcomeFunction | None = None,
    ) -> Self:
        """chat_model, value_chat_model, function: the caller's own. Raises InputError for settings that do not go
        together, and for files that cannot be read."""
        recipe, agent = settings.resolved_recipe, settings.part(AgentSettings)
        rule = _find_rule(recipe, settings.rubric, function)
        teacher, student = _find_models(settings, recipe, chat_model, value_chat_model)
        reader = find_reader(teacher, settings.beside("reader"), agent.agent)
        budget = settings.part(BudgetSettings)
        return cls(
            recipe.model_copy(update={"outcome": rule.name}),
            rule,
            teacher,
            {role: each for role, each in ((VALUE_MODEL, student), (READER, reader)) if each},
            settings.part(QuestionSettings),
            settings.part(RetrievalSettings),
            settings.part(ReadingSettings),
            load_prompts(agent.prompts, agent.style, agent.agent),
            agent.seed,
            Budget(Caps.of(budget, settings.parts), budget.yes),
            settings.price,
        )

    @property
    def models(self) -> dict[str, ModelSpec]:
        return {TEACHER: self.teacher, **self.others}

    def say_terms(self, watcher: Watcher) -> None:
        """What prices, outcomes and rewards are worth. Raises InputError for a cap on money without a price."""
        check_prices(watcher.say, *self.models.values(), given=self.prices, capped=self.budget.caps.cost is not None)
        if (student := self.others.get(VALUE_MODEL)) and student.price is SELF_HOSTED and not student.in_process:
            watcher.say(f"{student.name} has no list price and its own --value-base-url: its tokens count as free")
        if self.prompts.agent == "tools":
            check_notation(self.teacher.name, watcher.say)
        warn_all(answers_rehearsed(self.teacher.name, self.rule.name, reward=self.recipe.reward), watcher)

    def find_data(self, say: Callable[[str], None], *, searched: bool = True) -> tuple[QuestionFile, Path | None]:
        """The questions, and the corpus to search; None: that of the index or of the server. searched: whether the
        settings say where passages come from. Raises InputError."""
        found = find_data(
            self.questions,
            self.rule.check,
            self.retrieval.index_home,
            seed=self.seed,
            needs_corpus=searched and not self.retrieval.has_corpus,
            say=say,
        )
        if self.recipe.agent.steps_by_hops and not any(each.hops for each in found[0].limited(self.questions.limit)):
            raise InputError(
                "no question says how many hops it has (metadata.hops, a whole number above 0; a MuSiQue id; or gold "
                "passages): leave out agent.steps_by_hops, and give --max-steps"
            )
        return found

    async def open_retriever(
        self,
        corpus: Path | None,
        opened: AsyncExitStack,
        say: Callable[[str], None],
        before_building: Sequence[Callable[[], Awaitable[object]]] = (),
    ) -> Retriever:
        named, top_k = bool(self.questions.corpus), self.reading.top_k
        return await open_retriever(
            self.retrieval, corpus, opened, named=named, top_k=top_k, say=say, before_building=before_building
        )

    def agents(self, model: ChatModel, retriever: Retriever, reader: ChatModel | None) -> tuple[Agent, Agent | None]:
        """The teacher's, and the one that continues its steps, if another model does. reader: in that role, if any."""
        acts, reads, student = self.recipe.agent, self.others.get(READER), self.others.get(VALUE_MODEL)
        agent = Agent(
            model,
            with_passages_cut(retriever, self.reading.max_passage_chars),
            self.prompts,
            self.teacher.sampling,
            self.reading.top_k,
            acts.max_steps,
            self.seed,
            passage_order=acts.passage_order,
            steps_by_hops=acts.steps_by_hops,
            repair=acts.repair,
            must_answer=self.recipe.forced_answers != "none",
            reader=ModelCaller(reader, self.prompts, reads.sampling, self.seed) if reads and reader else None,
        )
        return agent, replace(agent, sampling=student.sampling) if student else None

    def config(
        self, settings: GenerateSettings, source: QuestionFile, corpus: Path | None, retriever: Retriever
    ) -> RunConfig:
        """The content of config.json. retriever: the one that searches."""
        acts = self.recipe.agent
        decides_answers: dict[str, Any] = {
            **source.identity,
            "retriever": retriever.identity,
            "top_k": self.reading.top_k,
            "prompts": self.prompts.hash_with(*self.rule.prompts),
            "model": self.teacher.name,
            "sampling": self.teacher.sampling.shown,
            "recipe": self.recipe.model_dump(mode="json"),
            "max_steps": acts.max_steps,
            "seed": self.seed,
            **reading_identity(self.reading.max_passage_chars, order_recorded(acts.passage_order)),
            **style_identity(self.prompts.style),
            **self.prompts.agent_identity,
            **{role: {"name": each.name, "sampling": each.sampling.shown} for role, each in self.others.items()},
        } | self.rule.identity
        if acts.steps_by_hops:
            decides_answers["steps_by_hops"] = True
        if not acts.repair:
            decides_answers["repair"] = False
        operational = {
            "base_url": shown_urls(settings.base_url or [os.environ.get("OPENAI_BASE_URL", "")]),
            "questions": str(source.path),
            "hub_revision": source.revision,
            "corpus": None if corpus is None else str(corpus),
            "settings": shown_settings(settings),
        }
        return RunConfig.of(decides_answers, operational)

    def identity(self, source: QuestionFile, config_hash: str) -> RunIdentity:
        return RunIdentity(
            dataset=source.dataset,
            split=source.split,
            config_hash=config_hash,
            seed=self.seed,
            recipe=self.recipe,
            renderer=renderer_hash(self.prompts),
            agent=self.prompts.agent_identity.get("agent"),
            prices={role: each.price for role, each in self.models.items()},
        )


def lacks_teacher(settings: GenerateSettings) -> bool:
    """Whether no teacher is named and the default one has no key. Raises InputError for an unknown data set."""
    questions = settings.part(QuestionSettings)
    check_names(questions)
    return not (settings.model or questions.of_atlas or os.environ.get(KEY_VARIABLE))


def _find_models(
    settings: GenerateSettings, recipe: Recipe, chat_model: ChatModel | None, value_chat_model: ChatModel | None
) -> tuple[ModelSpec, ModelSpec | None]:
    name = chat_model.name if chat_model else _teacher_name(settings)
    model = settings.part(ModelSettings).model_copy(update={"temperature": recipe.agent.temperature})
    limits = settings.part(LimitSettings)
    teacher = ModelSpec.of(model, limits, name, top_p=recipe.agent.top_p, parts=settings.parts)
    if recipe.agent.native:
        teacher = teacher.with_native_calls(settings.agent)
    value = settings.beside("value")
    if value.model is None and value_chat_model is None:
        if alone := next((each for each in ("base_url", "extra_body") if getattr(value, each)), None):
            raise InputError(f"{flag_of(f'value_{alone}')} needs a value model: give --value-model, or leave it out")
        return teacher, None
    if recipe.search.valuation != "continuation":
        raise InputError(
            f"recipe {recipe.name} samples no continuations: leave out --value-model, or choose another --recipe"
        )
    in_process = value.model in (OFFLINE, STUDENT) and not value.base_url  # which has another name in this role
    known = value_chat_model.name if value_chat_model else STUDENT if in_process else value.model or ""
    if known == name:
        raise InputError(f"--value-model {known} is the teacher, which continues by default; leave it out")
    flag, key = "--value-model", VALUE_KEY_VARIABLE
    return teacher, teacher.second(value, known, name_flag=flag, key_variable=key, self_hosted=True)


def _teacher_name(settings: GenerateSettings) -> str:
    """The teacher; by default offline for atlas, and GPT-4o where there is a key."""
    if lacks_teacher(settings):
        raise InputError(
            f"no teacher: set {KEY_VARIABLE} to use {DEFAULT_TEACHER}, or give --model NAME and --base-url URL, or "
            "--model offline (extractive, free)"
        )
    return settings.model or (OFFLINE if settings.part(QuestionSettings).of_atlas else DEFAULT_TEACHER)


def _find_rule(recipe: Recipe, rubric: Path | None, function: OutcomeFunction | None) -> OutcomeRule:
    if rubric is not None and (function or recipe.outcome != "rubric"):
        raise InputError(f"--rubric {rubric} goes with --outcome rubric; add that, or leave it out")
    if function is not None:
        return OutcomeRule(name_of_function(function), function=function)
    return OutcomeRule(recipe.outcome, read_rubric(rubric) if rubric else ())
