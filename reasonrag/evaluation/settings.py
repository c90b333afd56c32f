"""Settings of `evaluate`, `compare` and `ask`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from mcts import AgentDefaults
from reasonrag.agent.recipe_file import DEFAULT_RECIPE, find_recipe
from reasonrag.agent.settings import AgentSettings
from reasonrag.data.settings import QuestionSettings
from reasonrag.data.yaml_text import parse_changes
from reasonrag.errors import InputError
from reasonrag.evaluation.methods.choice import ALLOWABLE, ConditionName, MethodChoice, MethodName
from reasonrag.files import EVALUATION_HOME
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings, Prices
from reasonrag.retrieval.settings import BEST_FIRST, PassageOrder, ReadingSettings, RetrievalSettings
from reasonrag.settings import (
    COMMON,
    Changes,
    ExtraBody,
    Opposite,
    Panel,
    PlaceOrName,
    Settings,
    Words,
    flag_of,
    names_of_settings,
    setting,
)


class JudgeSettings(Settings):
    """How a judge of answers is asked."""

    judge_base_url: Words = setting(
        "Endpoint of the judge; its key is read from REASONRAG_JUDGE_API_KEY [default: that of the model, or "
        "OPENAI_BASE_URL]",
        Panel.JUDGE,
        default=[],
    )
    judge_extra_body: ExtraBody = setting("JSON object of extra fields for every request to the judge", Panel.JUDGE)


class AskSettings(
    LimitSettings, BudgetSettings, AgentSettings, ModelSettings, ReadingSettings, RetrievalSettings, QuestionSettings
):
    """Settings of `ask`: an agent as it is used, whose model may have been trained by `reasonrag train`."""

    model: PlaceOrName | None = setting(
        "Model name at the endpoint, folder of a trained model (which is served while the command "
        "runs), or offline [default for atlas: offline; otherwise required]",
        Panel.MODEL,
        common=True,
    )
    temperature: float = setting("Sampling temperature; 0: greedy", Panel.MODEL, default=0.0, ge=0, le=2)
    top_p: float | None = setting("Nucleus sampling probability [default: 1]", Panel.MODEL, gt=0, le=1)
    passage_order: PassageOrder | None = setting(
        f"Order of passages in a prompt: best-first or worst-first [default: {BEST_FIRST}]", Panel.RETRIEVAL
    )
    set: Changes = setting(
        "agent.native=true: send the endpoint `tools` and read `tool_calls`, with --agent tools; no other KEY=VALUE",
        Panel.MODEL,
        default=[],
    )
    base_model: PlaceOrName | None = setting(
        "Base model of an adapter: a folder or a name on the Hub [default: the one named in the adapter]", Panel.MODEL
    )
    tensor_parallel: int | None = setting(
        "GPUs among which vLLM divides a model folder's weights; without vLLM no effect [default: 1]", Panel.MODEL, ge=1
    )
    max_model_len: int | None = setting(
        "Tokens of prompt and reply that vLLM allows a model folder; without vLLM no effect [default: the model's own]",
        Panel.MODEL,
        ge=1,
    )
    trained_on: Path | None = setting(
        "Folder of the model, or of its training data, if --model is a name on a server; checks that "
        "questions and conditions match the training",
        Panel.CONSISTENCY,
    )
    patience: float = setting(
        "Seconds without a response before the endpoint counts as lost", Panel.EXECUTION, default=120.0, gt=0
    )

    @property
    def chosen_method(self) -> MethodChoice:
        return MethodChoice("agent", self.max_steps or AgentDefaults().max_steps)

    @property
    def native(self) -> bool:
        """Whether the model is sent `tools`. Raises InputError for other values of --set."""
        changes = parse_changes(self.set, example="agent.native=true")
        for key in changes.keys() - {"agent.native"}:
            name = key.removeprefix("agent.")
            instead = f"give {flag_of(name)}" if name in type(self).model_fields else "leave it out"
            raise InputError(f"--set {key}: here only agent.native is set so; {instead}")
        return find_recipe(DEFAULT_RECIPE, changes).agent.native

    @property
    def order(self) -> PassageOrder:
        return self.passage_order or BEST_FIRST


class EvaluateSettings(JudgeSettings, AskSettings):
    run: Annotated[Path | None, Panel.EXECUTION, COMMON] = Field(
        default=None,
        description="Directory of the evaluation; an interrupted one found there is continued [default: "
        "evals/QUESTIONS-SPLIT-METHOD-MODEL]",
    )
    split: str = setting("Split of the data set; bamboogle and popqa have test", Panel.DATA, default="dev", common=True)
    method: MethodName = setting(
        "How questions are answered: agent, or a baseline: direct or cot (without passages), rag, "
        "iter-retgen, search-r1, ircot, flare (needs token log-probabilities), adaptive-rag-prompted",
        Panel.MODEL,
        default="agent",
        common=True,
    )
    max_steps: int | None = setting(
        "Budget of a question, of every method: at most N completions, repair turns apart, and (N-1)//2 searches, or "
        "N-1 of an agent that reads and goes on in one turn; an agent must answer at its last step [default: 7]",
        Panel.MODEL,
        ge=1,
    )
    critic: PlaceOrName | None = setting(
        "Critic that scores steps: a folder that train-critic wrote, which is served while the command runs. Its "
        "scores count as calls towards the caps",
        Panel.CRITIC,
        common=True,
    )
    allow_critic: Annotated[bool, Opposite(None)] = setting(
        "Use the critic although it failed its evaluation, was trained on these questions or on other prompts",
        Panel.CRITIC,
        default=False,
    )
    best_of: int | None = setting(
        "Draw so many replies in every state (2, 4, 8 or 10, say) and take the step that --critic scores highest "
        "(arXiv 2502.13957, Algorithm 1); --temperature is then 1 by default",
        Panel.CRITIC,
        ge=2,
        le=64,
        common=True,
    )
    vote: int | None = setting(
        "Answer every question so many times and take the answer that most attempts agree on (self-consistency); "
        "--temperature is then 1 by default",
        Panel.MODEL,
        ge=2,
        le=64,
    )
    repair: bool = setting(
        "Give an unreadable reply of any method one repair turn, which does not count towards the budget",
        Panel.MODEL,
        default=True,
    )
    judge: str | None = setting(
        "Model that scores every answer: by the gold answers, or where some question has none by what was read; of "
        "long answers also which sentences are supported, and their citations. A model name, or offline",
        Panel.JUDGE,
        common=True,
    )
    rubric: Path | None = setting(
        "Text file with criteria for an answer, one per line: --judge scores by it, or by the question's own "
        "metadata.rubric",
        Panel.JUDGE,
    )
    allow: Annotated[list[ConditionName], BeforeValidator(names_of_settings)] = setting(
        f"Warn, but go on, if this differs from training; repeatable: {', '.join(ALLOWABLE)}",
        Panel.CONSISTENCY,
        default=[],
    )

    def default_run(self, model: str) -> Path:
        """Named after questions, split, method and the last part of the model's name."""
        named = self.part(QuestionSettings).named(self.method, Path(model).name)
        return EVALUATION_HOME / re.sub(r"[^\w.+-]+", "-", named)

    @property
    def chosen_method(self) -> MethodChoice:
        of_agent = super().chosen_method
        return replace(of_agent, name=self.method, best_of=self.best_of, vote=self.vote, repair=self.repair)


class CompareSettings(JudgeSettings, LimitSettings, BudgetSettings):
    out: Path | None = setting("Output folder [default: compare-A-B beside the first evaluation]")
    group: Words = setting(
        "NAME=RUN,RUN: evaluations of one condition with several seeds; repeatable. Groups are "
        "compared after single runs",
        default=[],
    )
    equivalent: float | None = setting(
        "Say whether a difference is shown to be within this many points, by two one-sided tests at 5 %", gt=0, le=100
    )
    judge: str | None = setting(
        "Model that chooses the better one of two answers, in both orders: a model name, or offline. For questions "
        "without gold answers, and for long answers",
        Panel.JUDGE,
        common=True,
    )
    prompts: Path | None = setting("Folder with your own prompts; the judge's is prefer.txt", Panel.JUDGE)
    price: Prices = setting(
        "NAME=IN,OUT: price of the judge, in dollars per million prompt tokens and completion tokens [default: the "
        "list price]",
        Panel.BUDGET,
        default=[],
    )
