"""Settings of `calibrate` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from mcts.search import STRIDE
from preference import PairingRules
from reasonrag.curation.settings import PairingSettings
from reasonrag.settings import (
    Concurrency,
    MaxCalls,
    MaxCost,
    Panel,
    Places,
    Price,
    Seed,
    Settings,
    Share,
    Words,
    names_of_settings,
)


class TuneSettings(PairingSettings):
    """Settings of `tune`; what it varies are settings of `generate`, which it reads as well."""

    run: Annotated[Path, Panel.TRIALS] = Field(description="Directory of the trials; continues interrupted ones")
    pilot: Annotated[int, Panel.TRIALS] = Field(
        default=30, ge=2, description="Questions to try every configuration on, the first N"
    )
    vary: Annotated[list[str], BeforeValidator(names_of_settings), Panel.TRIALS] = Field(
        default=[],
        description="Vary this setting; repeatable: alpha, max-calls-per-question, siblings, continuations, "
        "exploration, temperature, max-steps [default: all that the recipe uses]",
    )


class CalibrateSettings(Settings):
    """Settings of `calibrate`."""

    revalue: int = Field(default=0, ge=0, description="Pairs to revalue by fresh continuations; 0: none")
    k: int = Field(default=16, ge=1, lt=STRIDE, description="Fresh continuations of each of their steps")
    seed: Seed = Field(default=0, description="Seed of the choice of pairs")
    min_confidence: Share = Field(
        default=PairingRules().min_confidence, description="Minimum confidence of the pairs to choose from"
    )
    model: Annotated[str | None, Panel.MODEL] = Field(
        default=None,
        description="Model that continues. Its key is OPENAI_API_KEY, or REASONRAG_VALUE_API_KEY for the run's value "
        "model at its own address [default: the run's value model, else its teacher]",
    )
    base_url: Annotated[Words, Panel.MODEL] = Field(
        default=[], description="OpenAI-compatible endpoint of that model; repeatable [default: the run's]"
    )
    corpus: Annotated[Path | None, Panel.MODEL] = Field(default=None, description="The run's corpus, if it has moved")
    index: Annotated[Places, Panel.MODEL] = Field(
        default=[], description="The run's index, if it has moved; repeatable"
    )
    prompts: Annotated[Path | None, Panel.MODEL] = Field(
        default=None, description="Directory of the run's own prompts, if it has moved"
    )
    concurrency: Concurrency = 32
    max_cost: MaxCost = Field(
        default=None,
        description="Stop before all calibrations of the run with this model cost more than this, in dollars",
    )
    max_calls: MaxCalls = Field(default=None, description="Stop before they use more completions than this")
    price_in: Price = Field(
        default=None, description="Dollars per million prompt tokens [default: the run's, else from the price table]"
    )
    price_out: Price = Field(
        default=None,
        description="Dollars per million completion tokens [default: the run's, else from the price table]",
    )
