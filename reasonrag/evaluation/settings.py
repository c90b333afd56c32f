"""Settings of `evaluate`, `compare` and `ask`: the only place of their defaults that are not an agent's in general."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from reasonrag.agent.settings import MAX_STEPS, AgentSettings
from reasonrag.errors import choices
from reasonrag.settings import Settings, one_or_several

BaselineName = Literal["direct", "cot", "rag", "iter-retgen", "search-r1"]
RESAMPLES, CONFIDENCE = 2000, 0.95
"""Of every bootstrap, and the width of its intervals."""
MethodName = Literal["agent", BaselineName]
SEARCHLESS: tuple[MethodName, ...] = ("direct", "cot")
"""Methods that are shown no passages."""
ALLOWABLE = ("renderer", "top_k", "retriever", "max_steps", "trained_questions")
"""What may be otherwise than it should, where --allow names it."""


class ModelSettings(AgentSettings):
    """An agent as it would be used, of a model that may have been trained here."""

    model: str | None = Field(
        default=None,
        description="A model name of the endpoint, the folder of a trained model (a server of it is started), or "
        "offline [default for atlas: offline]",
    )
    temperature: float = Field(default=0.0, ge=0, le=2, description="Sampling temperature; 0: the likeliest reply")
    base_model: str | None = Field(
        default=None,
        description="What an adapter's folder is an adapter of: a folder or a name on the Hub [default: what it says]",
    )
    trained_on: Path | None = Field(
        default=None,
        description="The model's folder, or the data set it was trained on, where --model is a name on a server: "
        "questions and conditions are held against it",
    )
    patience: float = Field(
        default=120.0, gt=0, description="Seconds without an answer of any endpoint after which it is taken for lost"
    )

    @property
    def steps(self) -> int:
        """Step budget, the conclusion included."""
        return self.max_steps or MAX_STEPS["paper"]


class AskSettings(ModelSettings):
    """Settings of `ask`."""

    run: Path = Field(default=Path(), description="Of no use to a single question, of which nothing is written")


class EvaluateSettings(ModelSettings):
    """Settings of `evaluate`. A field's description is the help text of its flag."""

    split: str = Field(default="dev", description="Split of the data set; bamboogle and popqa have only test")
    method: MethodName = Field(
        default="agent",
        description="How questions are answered: agent, or a baseline: direct, cot (no passages), rag, iter-retgen, "
        "search-r1",
    )
    iterations: int = Field(
        default=3, ge=1, le=100, description="Of iter-retgen; 3 as in FlashRAG, the paper shows 1 to 7"
    )
    max_searches: int = Field(
        default=4, ge=0, le=100, description="Of search-r1, before it must answer; 4 is its paper's action budget"
    )
    judge: str | None = Field(
        default=None,
        description="Have a model score every answer, with the golden answers before it: a model name, or offline",
    )
    judge_base_url: list[str] = Field(
        default=[], description="Endpoint of the judge, whose key is REASONRAG_JUDGE_API_KEY [default: --base-url]"
    )
    judge_price_in: float | None = Field(
        default=None, ge=0, description="Dollars per million prompt tokens of the judge [default: the table's]"
    )
    judge_price_out: float | None = Field(
        default=None, ge=0, description="Dollars per million completion tokens of the judge [default: the table's]"
    )
    allow: list[str] = Field(
        default=[],
        description=f"Let this be otherwise than in training, with a warning; repeatable: {', '.join(ALLOWABLE)}",
    )
    bootstrap: int = Field(default=RESAMPLES, ge=1, le=1_000_000, description="Resamples behind an interval")
    bootstrap_seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the resamples")
    confidence: float = Field(default=CONFIDENCE, gt=0, lt=1, description="Confidence of the intervals")

    @field_validator("judge_base_url", mode="before")
    @classmethod
    def _judge_addresses(cls, value: object) -> object:
        return one_or_several(value)

    @field_validator("allow", mode="before")
    @classmethod
    def _allowances(cls, value: object) -> object:
        """As flags are spelled, or as settings are; the environment separates them by white space."""
        names = one_or_several(value)
        if isinstance(names, list | tuple):
            return [each.replace("-", "_") if isinstance(each, str) else each for each in names]
        return names

    @field_validator("allow")
    @classmethod
    def _known_allowances(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in ALLOWABLE:
                raise ValueError(f"nothing is called {name!r}; {choices(name, ALLOWABLE)}")
        return names


class CompareSettings(Settings):
    """Settings of `compare`."""

    out: Path | None = Field(
        default=None, description="Where to write [default: compare-A-B beside the first evaluation]"
    )
    group: list[str] = Field(
        default=[], description="Several seeds of one condition, NAME=RUN,RUN; repeatable, behind the single runs"
    )
    confidence: float = Field(default=CONFIDENCE, gt=0, lt=1, description="Confidence of the intervals")
    bootstrap: int = Field(default=RESAMPLES, ge=1, le=1_000_000, description="Resamples behind an interval")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the resamples, and of the choice of examples")
    examples: int = Field(default=5, ge=0, le=1000, description="Wins, and losses, that are shown in full")

    @field_validator("group", mode="before")
    @classmethod
    def _groups(cls, value: object) -> object:
        """The environment separates them by white space."""
        return one_or_several(value)
