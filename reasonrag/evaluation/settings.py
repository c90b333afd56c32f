"""Settings of `evaluate`, `compare` and `ask`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator

from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.settings import MAX_STEPS, AgentSettings
from reasonrag.errors import choices
from reasonrag.settings import Panel, Price, Seed, Settings, Words, names_of_settings

BaselineName = Literal["direct", "cot", "rag", "iter-retgen", "search-r1"]
RESAMPLES = 2000
"""Of every bootstrap, by default."""
Resamples: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]
Level: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
MethodName = Literal["agent", BaselineName]
SEARCHLESS: tuple[MethodName, ...] = ("direct", "cot")
"""Methods that are shown no passages."""
ALLOWABLE = ("renderer", "top_k", "retriever", "max_steps", "trained_questions")
"""Conditions that may differ from training if --allow names them."""


class ModelSettings(AgentSettings):
    """An agent as it is used: its model may have been trained by `reasonrag train`."""

    model: Annotated[str | None, Panel.MODEL] = Field(
        default=None,
        description="A model name of the endpoint, the folder of a trained model (which is then served), or "
        "offline [default for atlas: offline]",
    )
    temperature: Annotated[float, Panel.MODEL] = Field(
        default=0.0, ge=0, le=2, description="Sampling temperature; 0: greedy"
    )
    base_model: Annotated[str | None, Panel.MODEL] = Field(
        default=None,
        description="Base model of an adapter: a folder or a name on the Hub [default: the one that the adapter names]",
    )
    trained_on: Annotated[Path | None, Panel.CONSISTENCY] = Field(
        default=None,
        description="Folder of the model, or of the data set it was trained on, if --model is a name on a server: "
        "questions and conditions are checked against it",
    )
    patience: Annotated[float, Panel.EXECUTION] = Field(
        default=120.0, gt=0, description="Seconds without any response before the endpoint is considered lost"
    )

    @property
    def steps(self) -> int:
        """Step budget, the conclusion included."""
        return self.max_steps or MAX_STEPS["paper"]


class AskSettings(ModelSettings):
    """Settings of `ask`."""

    run: Annotated[Path, Panel.EXECUTION] = Field(default=Path(), description="Not used: nothing is written")


class EvaluateSettings(ModelSettings):
    """Settings of `evaluate`."""

    split: Annotated[str, Panel.DATA] = Field(
        default="dev", description="Split of the data set; bamboogle and popqa have only test"
    )
    method: Annotated[MethodName, Panel.MODEL] = Field(
        default="agent",
        description="How questions are answered: agent, or a baseline: direct, cot (no passages), rag, iter-retgen, "
        "search-r1",
    )
    iterations: Annotated[int, Panel.MODEL] = Field(
        default=3, ge=1, le=100, description="Iterations of iter-retgen; 3 as in FlashRAG, the paper reports 1 to 7"
    )
    max_searches: Annotated[int, Panel.MODEL] = Field(
        default=4,
        ge=0,
        le=100,
        description="Searches of search-r1 before it must answer; 4 is its paper's action budget",
    )
    judge: Annotated[str | None, Panel.JUDGE] = Field(
        default=None, description="Model that scores every answer against the gold answers: a model name, or offline"
    )
    judge_base_url: Annotated[Words, Panel.JUDGE] = Field(
        default=[], description="Endpoint of the judge; its key is REASONRAG_JUDGE_API_KEY [default: --base-url]"
    )
    judge_price_in: Price = Field(
        default=None, description="Dollars per million prompt tokens of the judge [default: from the price table]"
    )
    judge_price_out: Price = Field(
        default=None, description="Dollars per million completion tokens of the judge [default: from the price table]"
    )
    allow: Annotated[list[str], BeforeValidator(names_of_settings), Panel.CONSISTENCY] = Field(
        default=[], description=f"Only warn if this differs from training; repeatable: {', '.join(ALLOWABLE)}"
    )
    bootstrap: Annotated[Resamples, Panel.STATISTICS] = Field(
        default=RESAMPLES, description="Bootstrap resamples per interval"
    )
    bootstrap_seed: Annotated[Seed, Panel.STATISTICS] = Field(default=0, description="Seed of the resamples")
    confidence: Annotated[Level, Panel.STATISTICS] = Field(
        default=COMPARISON_LEVEL, description="Level of the intervals"
    )

    @field_validator("allow")
    @classmethod
    def _known_allowances(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in ALLOWABLE:
                raise ValueError(f"no condition is called {name!r}; {choices(name, ALLOWABLE)}")
        return names


class CompareSettings(Settings):
    """Settings of `compare`."""

    out: Path | None = Field(
        default=None, description="Where to write [default: compare-A-B beside the first evaluation]"
    )
    group: Words = Field(
        default=[],
        description="Several seeds of one condition, NAME=RUN,RUN; repeatable, compared after the single runs",
    )
    confidence: Level = Field(default=COMPARISON_LEVEL, description="Level of the intervals")
    bootstrap: Resamples = Field(default=RESAMPLES, description="Bootstrap resamples per interval")
    seed: Seed = Field(default=0, description="Seed of the resamples, and of the choice of examples")
    examples: int = Field(default=5, ge=0, le=1000, description="Wins, and losses, shown in full")
