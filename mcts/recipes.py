"""The named recipes: one search configuration and one reward rule each. These defaults stand nowhere else.

`docs/reference/recipes.md` says what each source states, what it leaves open, and where we differ on purpose. Sources:
`released`, the published ReasonRAG code; `reasonrag`, its paper (arXiv 2505.14069 v3), Appendix A and Section 2.2.3;
`continuation`, Eq. 1 of its Section 2.2.1 read literally, with real continuations; `prorag`, arXiv 2601.21912 and its
code; `ragym`, arXiv 2502.13957 and its code. `economy` is ours.
"""

from __future__ import annotations

from typing import Literal

from mcts.search import Configuration, SearchConfig

RecipeName = Literal["economy", "reasonrag", "continuation", "released", "prorag", "ragym"]
SupportBy = Literal["strings", "judge"]
JUDGED_OUTCOMES = frozenset({"judge", "rubric"})
"""Outcomes that a judge decides."""


class Recipe(Configuration):
    """How a tree is searched and how its steps are then rewarded."""

    ABSENT_IF_DEFAULT = ("unreadable", "forced_answers", "repairs_count", "greedy_continuations", "support")

    name: RecipeName
    search: SearchConfig
    reward: Literal["spre", "spre_even", "spre_distinct", "outcome", "value", "rank"]
    """The rule of `mcts.rewards` behind the labels."""
    outcome: str
    """The quality of an answer that is backed up and rewarded; to the search it is only a number."""
    margin_by_layer: bool
    """Divide margins between siblings by alpha**layer, so that deep pairs are not penalised."""
    judge_sees_gold: bool = False
    """Show judges the correct answers, including judges of answers and those that guide the search."""

    unreadable: Literal["wrong", "missing"] = "wrong"
    """What a reply is that cannot be read: an answer of quality 0, or an end of unknown quality, which has no reward
    and counts nowhere."""
    forced_answers: Literal["counted", "missing"] = "counted"
    """What an answer is that the agent had to give as its steps were spent: one like others, or of unknown quality, as
    for the published builder, which does not see it."""
    repairs_count: bool = False
    """Treat the reply to a repair turn like any other sample of its state."""
    greedy_continuations: bool = False
    """Continue steps at temperature 0."""
    support: SupportBy = "strings"
    """With outcome `evident_f1`, who says whether evidence supports an answer: string rules alone, or a judge too."""

    @property
    def judged(self) -> bool:
        """Whether a judge is asked for anything: in the search, or about answers."""
        return self.search.valuation != "continuation" or self.outcome in JUDGED_OUTCOMES


RECIPES: dict[RecipeName, Recipe] = {
    "continuation": Recipe(
        name="continuation",
        # Stated: real continuations, alpha .9. Open: widths and budgets; ours, capped at the published code's calls
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
            root_siblings=24,
            resamples=2,
            share_estimates=True,
            valuation="continuation",
            continuations=1,
            keep_continuations=True,
            simulations=128,
            max_calls=128,
            wave=2,
            alpha=0.9,
        ),
        reward="spre_even",
        outcome="evident_f1",
        margin_by_layer=True,
    ),
    "reasonrag": Recipe(
        name="reasonrag",
        # Stated: a judge with gold (Eq. 6), backup (Eq. 1), selection (Eq. 5), pruning, SPRE for labels.
        # Open: c, children, simulations and one child a visit, here as in the published code; the steps of a judged
        # path that is not finished, here its edges from the root; equal siblings, here one node; the judge's scale
        search=SearchConfig(
            selection="unit_puct",
            exploration=1.414,
            siblings=2,
            siblings_at_once=1,
            valuation="score",
            continuations=1,
            simulations=64,
            wave=1,
            alpha=0.9,
            backup_discount="paths",
        ),
        reward="spre_distinct",
        outcome="f1",
        margin_by_layer=False,
        judge_sees_gold=True,
        unreadable="missing",
    ),
    "released": Recipe(
        name="released",
        # What the published code passes, whose trees count an answer's articles and merge nothing
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
            merge_equal=False,
        ),
        reward="outcome",
        outcome="builder_f1",
        margin_by_layer=False,
        judge_sees_gold=True,
        unreadable="missing",
        forced_answers="missing",
        repairs_count=True,
    ),
    "prorag": Recipe(
        name="prorag",
        # Stated, and in the code: all but the wave. Depth and sampling temperature are the agent's
        search=SearchConfig(
            selection="puct",
            exploration=2.5,
            siblings=5,
            valuation="continuation",
            continuations=1,
            value_one=True,
            simulations=200,
            wave=1,
            alpha=0.99,
            backup_discount="levels",
        ),
        reward="value",
        outcome="prorag_f1",
        margin_by_layer=False,
        greedy_continuations=True,
    ),
    "ragym": Recipe(
        name="ragym",
        # Stated, and in the code: ten actions, ranked without gold, at most ten iterations, reward 1 / (1 + rank)
        search=SearchConfig(
            selection="chain",
            exploration=0.0,
            siblings=10,
            valuation="rank",
            continuations=1,
            simulations=10,
            wave=1,
            alpha=1.0,
            merge_equal=False,
        ),
        reward="rank",
        outcome="f1",
        margin_by_layer=False,
        unreadable="missing",
    ),
}
