"""Settings of `calibrate` and `tune`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from mcts.search import STRIDE
from preference import PairingRules
from reasonrag.curation.settings import PairingSettings
from reasonrag.settings import Settings, list_of_places, one_or_several


class TuneSettings(PairingSettings):
    """Settings of `tune`; what it varies are settings of `generate`, which it reads as well."""

    run: Path = Field(description="Directory of the trials; those that were interrupted are continued")
    pilot: int = Field(default=30, ge=2, description="Questions to try every configuration on, the first ones")
    vary: list[str] = Field(
        default=[],
        description="Vary this setting; may be repeated: alpha, max-calls-per-question, siblings, continuations, "
        "exploration, temperature, max-steps [default: all that the recipe uses]",
    )

    @field_validator("vary", mode="before")
    @classmethod
    def _as_settings(cls, value: object) -> object:
        """As flags are spelled, or as settings are; the environment separates them by white space."""
        names = value.split() if isinstance(value, str) else value
        if isinstance(names, list | tuple):
            return [each.replace("-", "_") if isinstance(each, str) else each for each in names]
        return names


class CalibrateSettings(Settings):
    """Settings of `calibrate`."""

    revalue: int = Field(default=0, ge=0, description="Pairs to value once more, by fresh continuations; 0: none")
    k: int = Field(default=16, ge=1, lt=STRIDE, description="Fresh continuations of each of their steps")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the choice of pairs")
    min_confidence: float = Field(
        default=PairingRules().min_confidence, ge=0, le=1, description="Smallest confidence of the pairs to choose from"
    )
    model: str | None = Field(
        default=None,
        description="Who continues; its key is OPENAI_API_KEY, that of the run's value model with its own address "
        "REASONRAG_VALUE_API_KEY [default: who did so in the run, its teacher or its value model]",
    )
    base_url: list[str] = Field(
        default=[], description="Its OpenAI-compatible endpoint; repeatable [default: the run's]"
    )
    corpus: Path | None = Field(default=None, description="The run's corpus, if it has moved")
    index: list[Path] = Field(default=[], description="The run's index, if it has moved; repeatable")
    prompts: Path | None = Field(default=None, description="Directory of the run's own prompts, if it has moved")
    concurrency: int = Field(default=32, ge=1, description="HTTP requests in flight")
    max_cost: float | None = Field(
        default=None, ge=0, description="Stop before the calibrations of the run with this model cost more, in dollars"
    )
    max_calls: int | None = Field(default=None, ge=0, description="Stop before they use more replies")
    price_in: float | None = Field(
        default=None, ge=0, description="Dollars per million prompt tokens [default: the run's, else the table's]"
    )
    price_out: float | None = Field(
        default=None, ge=0, description="Dollars per million completion tokens [default: the run's, else the table's]"
    )

    @field_validator("base_url", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        return one_or_several(value)

    @field_validator("index", mode="before")
    @classmethod
    def _indexes(cls, value: object) -> object:
        return list_of_places(value)
