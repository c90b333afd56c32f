"""The named recipes: one search configuration and one reward rule each. The only place of these defaults.

Sources: `released` is what the published ReasonRAG code passes (two children, 64 simulations, c 1.414, builder
discount .9). `paper` follows arXiv 2505.14069 where it says (real continuations, alpha .9); it gives no widths or
budgets that could be found, so those are ours, capped at the 128 calls (64 generations, 64 judgements) of the
published code. `economy` is ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from mcts.search import SearchConfig

RecipeName = Literal["paper", "economy", "released"]


class Recipe(BaseModel):
    """How a tree is searched and what its steps are then worth."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: RecipeName
    search: SearchConfig
    reward: Literal["spre", "visit_weighted"]
    """Which function of `mcts.rewards` makes the labels."""
    margin_by_layer: bool
    """Whether margins between siblings are divided by alpha**layer, so that deep pairs are not penalised."""


RECIPES: dict[RecipeName, Recipe] = {
    "paper": Recipe(
        name="paper",
        search=SearchConfig(
            selection="uct",
            exploration=1.414,
            siblings=3,
            valuation="continuation",
            continuations=2,
            simulations=8,
            max_calls=128,
            wave=2,
            alpha=0.9,
        ),
        reward="spre",
        margin_by_layer=True,
    ),
    "economy": Recipe(
        name="economy",
        search=SearchConfig(
            selection="mixed",
            exploration=0.0,
            siblings=4,
            valuation="continuation",
            continuations=2,
            keep_continuations=True,
            simulations=12,
            max_calls=96,
            wave=4,
            alpha=0.9,
        ),
        reward="spre",
        margin_by_layer=True,
    ),
    "released": Recipe(
        name="released",
        search=SearchConfig(
            selection="uct",
            exploration=1.414,
            siblings=2,
            siblings_at_once=1,
            valuation="score",
            continuations=1,
            simulations=64,
            wave=1,
            alpha=0.9,
        ),
        reward="visit_weighted",
        margin_by_layer=False,
    ),
}
