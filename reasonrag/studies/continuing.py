"""What continues the steps of a run again, from its config.json: the model, the agent, and the outcome rule.

Decides which of them may have changed since the run, and which must be the same. Does not know what is valued.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from preference.records import first_error
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS, OutcomeFunction, OutcomeRule
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import read_by
from reasonrag.agent.reader import find_reader
from reasonrag.agent.settings import OURS, AgentSettings
from reasonrag.data.compressed import on_the_hub
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.files import CONFIG
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, VALUE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import STUDENT, OfflineTeacher
from reasonrag.llm.settings import LimitSettings, ModelSettings, ValueModelSettings
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.passage_length import with_passages_cut
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import BEST_FIRST, ReadingSettings, RetrievalSettings
from reasonrag.run_config import Operational, read_config
from reasonrag.settings import Settings

MOVED = "put it back, or say where it is now by running the same generate again with --corpus, --index or --prompts"
"""A run that is done asks nothing, and notes its places."""
AnyRecord = TypeVar("AnyRecord", bound=Settings)


class RecordedRun:
    """A run of `generate` by its config.json: what decided its answers, and its settings."""

    def __init__(self, run: Path) -> None:
        """Raises InputError for runs whose steps cannot be continued, naming a missing or unreadable key."""
        made = read_config(run / CONFIG)
        decides, self._operational = made.decides_answers, made.operational or Operational()
        if decides.imported:
            raise InputError(
                f"{run} was imported: the model and corpus of its steps are unknown, so they cannot be continued"
            )
        needed = {f"decides_answers.{name}": getattr(decides, name) for name in ("model", "retriever", "prompts")}
        needed |= {"config_hash": made.config_hash, "operational.settings": self._operational.settings}
        if missing := next((name for name, value in needed.items() if not value), None):
            raise InputError(
                f"{run / CONFIG} lacks {missing}, so nothing can be continued. Give a run directory of reasonrag "
                "generate; published runs have no settings"
            )
        self.run, self.config_hash, self.decides = run, made.config_hash, decides

    def recorded(self, record: type[AnyRecord]) -> AnyRecord:
        """A record of the run's settings. Raises InputError."""
        saved = self._operational.settings
        try:
            return record.model_validate({name: saved[name] for name in record.model_fields if name in saved})
        except ValidationError as error:
            raise InputError(
                f"{self.run / CONFIG}: operational.settings: {first_error(error)}. Restore the file, or make the run "
                "again if another version of reasonrag made it"
            ) from error

    def who_continues(
        self, given: ModelSettings, concurrency: int, chat_model: ChatModel | None
    ) -> tuple[ModelSpec, ModelSpec | None]:
        """The model that continued in the run, unless another one is given; and the run's reader, if it is neither."""
        saved, decides = self.recorded(ModelSettings), self.decides
        wanted = chat_model.name if chat_model else given.model or decides.student or decides.model
        addresses = saved.base_url or ([] if decides.model == OFFLINE else self._operational.base_url)
        of_teacher = {"base_url": addresses, "price": given.price or saved.price}
        if wanted == decides.model and given.base_url:
            of_teacher["base_url"] = given.base_url
        limits = self.recorded(LimitSettings).model_copy(update={"concurrency": concurrency})
        spec = ModelSpec.of(saved.model_copy(update=of_teacher), limits, decides.model)
        spec = replace(spec, sampling=Sampling.model_validate(decides.sampling), settles_effort=False)
        model = spec if wanted == decides.model else self._beside(spec, given, wanted, chat_model)
        reader = read_by(decides.agent, decides.model, decides.reader.name if decides.reader else None)
        if reader in (None, model.name):
            return model, None
        if reader == decides.model:
            return model, spec.likeliest("reader")
        address = self.recorded(AgentSettings).reader_base_url
        own = ModelSettings(model=reader, base_url=address, price=of_teacher["price"])
        return model, find_reader(spec, own, decides.agent or OURS)

    def _beside(self, teacher: ModelSpec, given: ModelSettings, wanted: str, chat_model: ChatModel | None) -> ModelSpec:
        """A model that was not the teacher. Only at the address it had in the run is it known to be free."""
        value = self.recorded(ValueModelSettings) if wanted == self.decides.student else ValueModelSettings()
        own = given.base_url or value.value_base_url
        in_process = not chat_model and wanted in (OFFLINE, STUDENT) and not own
        price = given.price or self.recorded(ModelSettings).price
        return teacher.second(
            ModelSettings(base_url=own, extra_body=value.value_extra_body, price=price),
            STUDENT if in_process else wanted,
            name_flag="--model",
            key_variable=VALUE_KEY_VARIABLE if value.value_base_url else KEY_VARIABLE,
            self_hosted=bool(value.value_base_url and not given.base_url),
        )

    async def agent(
        self,
        model: ModelSpec,
        reader: ModelSpec | None,
        rule: OutcomeRule,
        retriever: Retriever | None,
        opened: AsyncExitStack,
        *,
        say: Callable[[str], None],
    ) -> Agent:
        """The run's agent; its models are never asked, see `Agent.anew`. Raises InputError for other prompts, and for a
        corpus or an index that is gone or has other passages."""
        decides, agent, reading = self.decides, self.recorded(AgentSettings), self.recorded(ReadingSettings)
        if agent.prompts and not agent.prompts.exists():
            raise InputError(f"the folder of the run's prompts, {agent.prompts}, no longer exists: {MOVED}")
        prompts = load_prompts(agent.prompts, agent.style, agent.agent)
        if prompts.hash_with(*rule.prompts) != decides.prompts:
            raise InputError(f"{self.run} was made with other prompts: {MOVED}")
        retriever = retriever or await self._open_retriever(opened, reading.top_k, say)
        if retriever.identity != decides.retriever:
            raise InputError(
                f"{self.run} was made with the index {decides.retriever}, this one is {retriever.identity}: {MOVED}"
            )
        return Agent(
            OfflineTeacher(),
            with_passages_cut(retriever, reading.max_passage_chars),
            prompts,
            model.sampling,
            reading.top_k,
            decides.max_steps or 1,
            agent.seed,
            passage_order="worst-first" if decides.passage_order == "worst-first" else BEST_FIRST,
            steps_by_hops=decides.steps_by_hops,
            must_answer=decides.recipe.forced_answers != "none",
            reader=ModelCaller(OfflineTeacher(), prompts, reader.sampling, agent.seed) if reader else None,
        )

    async def _open_retriever(self, opened: AsyncExitStack, top_k: int, say: Callable[[str], None]) -> Retriever:
        retrieval, corpus = self.recorded(RetrievalSettings), self._operational.corpus
        place, named = Path(corpus) if corpus else None, bool(self.recorded(QuestionSettings).corpus)
        kept = retrieval.is_remote or (place and on_the_hub(place))
        if gone := [each for each in (None if kept else place, *retrieval.index) if each and not each.exists()]:
            raise InputError(f"what the run searched, {gone[0]}, no longer exists: {MOVED}")
        return await open_retriever(retrieval, place, opened, named=named, top_k=top_k, say=say)

    def rule(self, function: OutcomeFunction | None, *, model: ModelSpec) -> OutcomeRule:
        """The run's outcome rule. Raises InputError if it cannot be applied again."""
        run, name = self.run, self.decides.recipe.outcome
        rule = OutcomeRule(name, function=function)
        if rule.judged and model.recorded_as is not None:
            teacher = self.decides.model
            raise InputError(
                f"the answers of {run} were judged by its teacher, {teacher}, and calibrate asks one model only: "
                f"give --model {teacher}, which then continues and judges"
            )
        if rule.identity.get("outcome_rule") != self.decides.outcome_rule:
            raise InputError(
                f"the answers of {run} were valued by another rule of {name} than this version of reasonrag has, so "
                "fresh answers say nothing of its labels: calibrate it with the version that made it, or generate it "
                "again"
            )
        known = rule.judged or name in OF_GOLDEN_ANSWERS
        if known != (function is None) or (function and getattr(function, "__name__", "") != name):
            how = "leave out outcome" if known else f"call reasonrag.calibrate({str(run)!r}, outcome={name}, ..)"
            raise InputError(f"the outcome of {run} is {'' if known else 'the function '}{name}: {how}")
        return rule
