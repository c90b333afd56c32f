"""Settings of `calibrate` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from mcts.search import STRIDE
from preference import PairingRules
from reasonrag.curation.settings import PairingSettings
from reasonrag.settings import (
    COMMON,
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
    Yes,
    names_of_settings,
    setting,
)


class TuneSettings(PairingSettings):
    """Settings of `tune`; what it varies are settings of `generate`, which it reads as well."""

    run: Annotated[Path, Panel.TRIALS, COMMON] = Field(
        description="Directory of the trials; interrupted ones found there are continued"
    )
    pilot: int = setting(
        "Questions to try every configuration on: the first N", Panel.TRIALS, default=30, ge=2, common=True
    )
    vary: Annotated[list[str], BeforeValidator(names_of_settings)] = setting(
        "Setting to vary: max-calls-per-question, siblings, continuations, exploration, "
        "temperature or max-steps; repeatable [default: all that the recipe uses]",
        Panel.TRIALS,
        default=[],
        common=True,
    )


class CalibrateSettings(Settings):
    """Settings of `calibrate`."""

    revalue: int = setting(
        "Pairs whose rewards are measured again with fresh continuations", default=40, ge=1, common=True
    )
    k: int = setting("Fresh continuations per step", default=16, ge=1, lt=STRIDE, common=True)
    seed: Seed = setting("Seed of the sample of pairs", default=0)
    min_confidence: Share = setting("Minimum confidence of the sampled pairs", default=PairingRules().min_confidence)
    model: str | None = setting(
        "Model that continues the steps. Its key is read from OPENAI_API_KEY, or from "
        "REASONRAG_VALUE_API_KEY for the run's value model at its own endpoint [default: the run's "
        "value model, else its teacher]",
        Panel.MODEL,
        common=True,
    )
    base_url: Words = setting(
        "OpenAI-compatible endpoint of that model; repeatable [default: the run's]",
        Panel.MODEL,
        default=[],
        common=True,
    )
    corpus: Path | None = setting("Corpus of the run, if it was moved", Panel.MODEL)
    index: Places = setting("Index of the run, if it was moved; repeatable", Panel.MODEL, default=[])
    prompts: Path | None = setting("Folder with the run's own prompts, if it was moved", Panel.MODEL)
    concurrency: Concurrency = 32
    max_cost: MaxCost = setting(
        "Stop before all calibrations of this run with this model cost more than this many dollars", common=True
    )
    max_calls: MaxCalls = setting("Stop before they use more than this many completions")
    yes: Yes = False
    price_in: Price = setting("Dollars per million prompt tokens [default: the run's, else the list price]")
    price_out: Price = setting("Dollars per million completion tokens [default: the run's, else the list price]")
