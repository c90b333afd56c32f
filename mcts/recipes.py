"""The named recipes: one search configuration and one reward rule each. These defaults stand nowhere else.

Sources: `released` is what the published ReasonRAG code passes (two children, 64 simulations, c 1.414, builder
discount .9). `paper` follows arXiv 2505.14069 where it is explicit (real continuations, alpha .9); it states no widths
or budgets, so those are ours, capped at the 128 calls (64 generations, 64 judgements) of the published code. `economy`
is ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcts.search import SearchConfig

RecipeName = Literal["paper", "economy", "released"]
JudgeKind = Literal["score", "rank"]
JUDGED_OUTCOMES = frozenset({"judge", "rubric"})
"""Outcomes that a judge decides."""


class Recipe(BaseModel):
    """How a tree is searched and how its steps are then rewarded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: RecipeName
    search: SearchConfig
    reward: Literal["spre", "spre_even", "outcome"]
    """The rule of `mcts.rewards` behind the labels."""
    outcome: str
    """The quality of an answer that is backed up and rewarded; to the search it is only a number."""
    margin_by_layer: bool
    """Divide margins between siblings by alpha**layer, so that deep pairs are not penalised."""
    judge: JudgeKind | None = None
    """How a judge rates siblings after the search, for their rewards: one by one (score) or against each other
    (rank)."""
    judge_weight: float = Field(default=0.0, ge=0, le=1)
    """The judgement's share in a reward; the rest comes from `reward`."""
    judge_sees_gold: bool = False
    """Show judges the correct answers, including judges of answers and those that guide the search."""

    @property
    def judged(self) -> bool:
        """Whether a judge is asked for anything: in the search, after it, or about answers."""
        return self.judge is not None or self.search.valuation == "score" or self.outcome in JUDGED_OUTCOMES

    @property
    def reward_name(self) -> str:
        """The rules and judgements that make up a reward, joined by a plus sign."""
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
