"""The named recipes: one search configuration and one reward rule each. The only place of these defaults.

Sources: `released` is what the published ReasonRAG code passes (two children, 64 simulations, c 1.414, builder
discount .9). `paper` follows arXiv 2505.14069 where it says (real continuations, alpha .9); it gives no widths or
budgets that could be found, so those are ours, capped at the 128 calls (64 generations, 64 judgements) of the
published code. `economy` is ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcts.search import SearchConfig

RecipeName = Literal["paper", "economy", "released"]
JudgeKind = Literal["score", "rank"]
JUDGED_OUTCOMES = frozenset({"judge", "rubric"})
"""Qualities of an answer that a judge decides."""


class Recipe(BaseModel):
    """How a tree is searched and what its steps are then worth."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: RecipeName
    search: SearchConfig
    reward: Literal["spre", "spre_even", "outcome"]
    """Which function of `mcts.rewards` makes the labels."""
    outcome: str
    """Which quality of an answer is backed up and rewarded; the search knows it as a number only."""
    margin_by_layer: bool
    """Whether margins between siblings are divided by alpha**layer, so that deep pairs are not penalised."""
    judge: JudgeKind | None = None
    """How somebody outside judges siblings after the search, for their rewards: one by one, or against each other."""
    judge_weight: float = Field(default=0.0, ge=0, le=1)
    """Share of that judgement in a reward; the rest is the share of `reward`."""
    judge_sees_gold: bool = False
    """Whether judges, those of answers and those that guide the search included, are shown the correct answers."""

    @property
    def judged(self) -> bool:
        """Whether anything is judged, in the search or after it, answers included."""
        return self.judge is not None or self.search.valuation == "score" or self.outcome in JUDGED_OUTCOMES

    @property
    def reward_name(self) -> str:
        """What rewards are made of: names of rules of `mcts.rewards` and of judgements, joined by a plus sign."""
        if self.judge is None:
            return self.reward
        return f"judge-{self.judge}" if self.judge_weight == 1 else f"{self.reward}+judge-{self.judge}"


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
        outcome="f1",
        margin_by_layer=True,
    ),
    "economy": Recipe(
        name="economy",
        search=SearchConfig(
            selection="mixed",
            exploration=0.0,
            siblings=4,
            root_siblings=8,
            resamples=2,
            share_estimates=True,
            valuation="continuation",
            continuations=1,
            keep_continuations=True,
            simulations=64,
            max_calls=128,
            wave=4,
            alpha=0.9,
        ),
        reward="spre_even",
        outcome="evident_f1",
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
        reward="outcome",
        outcome="f1",
        margin_by_layer=False,
        judge_sees_gold=True,
    ),
}
