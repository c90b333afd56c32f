"""Monte Carlo tree search without I/O: the search asks for work and is told the results.

The search is generic over a step payload `P` and does no I/O. A driver runs the loop

    while work := search.ask():
        for item in work:                      # in any order, in parallel if it likes
            search.tell(item.id, result_of(item))

and the finished tree is a pure function of (config, results told), whatever the order of telling.
This package knows nothing of retrieval, language models, networks or clocks.
"""

from mcts.expected_outcomes import Estimate, estimates
from mcts.recipe import RECIPES, AgentDefaults, Recipe
from mcts.rewards import evenly_drawn_rewards, shortest_path_reward, spre_rewards, visit_weighted_rewards
from mcts.search import (
    Continue,
    Continued,
    Expand,
    Expanded,
    Rank,
    Ranked,
    Result,
    Score,
    Scored,
    Search,
    SearchConfig,
    Work,
)
from mcts.tree import ROOT_ID, Node, Rollout, Step, Tree

__all__ = [
    "RECIPES",
    "ROOT_ID",
    "AgentDefaults",
    "Continue",
    "Continued",
    "Estimate",
    "Expand",
    "Expanded",
    "Node",
    "Rank",
    "Ranked",
    "Recipe",
    "Result",
    "Rollout",
    "Score",
    "Scored",
    "Search",
    "SearchConfig",
    "Step",
    "Tree",
    "Work",
    "estimates",
    "evenly_drawn_rewards",
    "shortest_path_reward",
    "spre_rewards",
    "visit_weighted_rewards",
]
