"""What continues the steps of a run again: the plan of `generate`, made anew from config.json, and the model asked for.

Decides which settings may have changed since the run, and that all that decided its answers is the same. Does not know
what is valued.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from mcts.recipe import JUDGED_OUTCOMES
from preference.records import first_error
from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.agent.protocols.known import read_by
from reasonrag.data.compressed import on_the_hub
from reasonrag.data.questions import QuestionFile
from reasonrag.errors import InputError
from reasonrag.exploration.explore import Given
from reasonrag.exploration.explorer import READER
from reasonrag.exploration.plan import Plan
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import CONFIG
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, VALUE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.settings import ModelSettings
from reasonrag.progress import Watcher
from reasonrag.run_config import changed_keys, read_config

MOVED = "put it back, or say where it is now by running the same generate again with --corpus, --index or --prompts"
"""A run that is done asks nothing, and notes its places."""


class RecordedRun:
    """A run of `generate` by its config.json. model: continues its steps. reader: the run's, if it is another one."""

    def __init__(self, run: Path, asked: ModelSettings, given: Given, *, concurrency: int) -> None:
        """The model is the one that continued in the run, unless another one is asked for. Raises InputError."""
        self._run, self._made = run, read_config(run / CONFIG)
        self.config_hash = self._made.config_hash
        decides, operational = self._made.decides_answers, self._made.operational
        if decides.imported or not (self.config_hash and operational and operational.settings):
            raise InputError(
                f"{run / CONFIG} does not say how to continue the steps. Give a run directory of reasonrag generate; "
                "imported and published runs have no settings"
            )
        name = given.chat_model.name if given.chat_model else asked.model or decides.student or decides.model
        recorded, is_teacher = self._recorded(operational.settings), name == decides.model
        addresses = recorded.base_url or ([] if decides.model == OFFLINE else operational.base_url)
        update = {
            "model": decides.model or recorded.model,
            "value_model": decides.student,
            "reasoning_effort": decides.reasoning_effort,
            "base_url": asked.base_url if asked.base_url and is_teacher else addresses,
            "price": asked.price or recorded.price,
            "concurrency": concurrency,
            "shard": None,
        }
        self._settings = recorded.model_copy(update=update)
        self._corpus = Path(operational.corpus) if operational.corpus else None
        self._check_places()
        self._check_outcome(given)
        self.plan = Plan.of(self._settings, function=given.function)
        self.model = self.plan.teacher if is_teacher else self._beside(name, asked)
        if self.plan.rule.judged and not is_teacher:
            raise InputError(
                f"the answers of {run} were judged by its teacher, {decides.model}, and calibrate asks one model only: "
                f"give --model {decides.model}, which then continues and judges"
            )
        reads = read_by(decides.agent, decides.model, decides.reader.name if decides.reader else None)
        reader = self.plan.others.get(READER) or self.plan.teacher.likeliest("reader")
        self.reader = None if reads in (None, name) else reader

    def _recorded(self, saved: dict[str, object]) -> GenerateSettings:
        known = {name: value for name, value in saved.items() if name in GenerateSettings.model_fields}
        try:
            return GenerateSettings.model_validate(known)
        except ValidationError as error:
            raise InputError(
                f"{self._run / CONFIG}: operational.settings: {first_error(error)}. Restore the file, or make the run "
                "again if another version of reasonrag made it"
            ) from error

    def _check_places(self) -> None:
        settings = self._settings
        elsewhere = settings.is_remote or (self._corpus and on_the_hub(self._corpus))
        places = [settings.prompts, None if elsewhere else self._corpus, *settings.index]
        if gone := next((each for each in places if each and not each.exists()), None):
            raise InputError(f"what the run used, {gone}, no longer exists: {MOVED}")

    def _check_outcome(self, given: Given) -> None:
        """A function is in no file."""
        name = self._made.decides_answers.recipe.outcome
        needed = None if name in OF_GOLDEN_ANSWERS | JUDGED_OUTCOMES else name
        function = getattr(given.function, "__name__", "") if given.function else None
        if needed != function:
            how = f"call reasonrag.calibrate({str(self._run)!r}, outcome={name}, ..)" if needed else "leave out outcome"
            raise InputError(f"the outcome of {self._run} is {'the function ' if needed else ''}{name}: {how}")

    def _beside(self, name: str, asked: ModelSettings) -> ModelSpec:
        """A model that was not the teacher. Only at the address it had in the run is it known to be free."""
        student = name == self._settings.value_model
        value = self._settings.beside("value") if student else ModelSettings(price=self._settings.price)
        return self.plan.teacher.second(
            value.model_copy(update={"base_url": asked.base_url or value.base_url}),
            name,
            name_flag="--model",
            key_variable=VALUE_KEY_VARIABLE if value.base_url else KEY_VARIABLE,
            self_hosted=bool(value.base_url) and not asked.base_url,
        )

    async def agent(self, given: Given, opened: AsyncExitStack, watcher: Watcher) -> Agent:
        """The run's agent; its models are never asked, see `Agent.anew`. Raises InputError where anything that decided
        answers is not as it was."""
        retriever = given.retriever or await self.plan.open_retriever(self._corpus, opened, watcher.say)
        nothing = QuestionFile("", "", Path(), "", total=0)
        was = self._made.decides_answers.model_dump()
        now = self.plan.config(self._settings, nothing, self._corpus, retriever).decides_answers.model_dump()
        now |= {name: was.get(name) for name in (*nothing.identity, "partition", "sample")}  # the trees hold questions
        if changed := changed_keys(was, now):
            raise InputError(
                f"{self._run} was made otherwise, so fresh answers would say nothing of its labels. Changed: "
                f"{'; '.join(changed)}. If something was moved or changed, {MOVED}; if another version of reasonrag "
                "made the run, generate it again"
            )
        plan = replace(self.plan, others={READER: self.reader} if self.reader else {})
        agent, _ = plan.agents(OfflineTeacher(), retriever, OfflineTeacher() if self.reader else None)
        return replace(agent, sampling=self.model.sampling)
