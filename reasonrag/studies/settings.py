"""Settings of `calibrate` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mcts.search import STRIDE
from preference import PairingRules
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.llm.settings import BudgetSettings, Prices
from reasonrag.settings import COMMON, Concurrency, MaxCost, Panel, Seed, Settings, Share, Words, setting

_OF_GENERATE = (
    "dataset split sample data_dir questions corpus retriever index index_home model base_url recipe set outcome seed "
    "concurrency max_cost max_calls yes price"
).split()
NOT_OF_TUNE = [name for name in GenerateSettings.model_fields if name not in (*_OF_GENERATE, "run")]
"""Settings of `generate` that `tune` reads in their table alone, or has not at all."""


class TuneSettings(Settings):
    """Settings of `tune`; what it varies are values of the recipe of `generate`, whose settings it reads as well."""

    run: Annotated[Path, Panel.TRIALS, COMMON] = Field(
        description="Directory of the trials; interrupted ones found there are continued"
    )
    pilot: int = setting("Questions to try every recipe on: the first N", Panel.TRIALS, default=30, ge=2, common=True)
    vary: Words = setting(
        "KEY=VALUE,VALUE,..: values of the recipe to try, one after the other, as in search.siblings=3,4,6 or "
        "search.max_calls=64,128,192; repeatable. docs/reference/recipes.md lists the keys",
        Panel.TRIALS,
        default=[],
        common=True,
    )
    min_confidence: Share = setting(
        "Minimum confidence of the pairs that count", Panel.PAIRING, default=PairingRules().min_confidence, common=True
    )


class CalibrateSettings(BudgetSettings):
    revalue: int = setting(
        "Pairs whose rewards are measured again with fresh continuations", default=40, ge=1, common=True
    )
    k: int = setting("Fresh continuations per step", default=16, ge=1, lt=STRIDE, common=True)
    data: Path | None = setting(
        "Data set whose rows of this run are sampled, however they were labelled [default: what pairs would make of "
        "the run, with --min-confidence]",
        common=True,
    )
    seed: Seed = setting("Seed of the sample of pairs", default=0)
    min_confidence: Share = setting(
        "Minimum confidence of the sampled pairs; of no effect with --data", default=PairingRules().min_confidence
    )
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
    concurrency: Concurrency = 32
    max_cost: MaxCost = setting(
        "Stop before all calibrations of this run with this model cost more than this many dollars", common=True
    )
    price: Prices = setting(
        "NAME=IN,OUT: price of the model, in dollars per million prompt tokens and completion tokens [default: the "
        "run's, else the list price]",
        Panel.BUDGET,
        default=[],
    )
