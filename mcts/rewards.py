"""Rewards for labels: one for every step of a finished tree.

`spre_rewards` is the paper's estimate, `distinct_spre_rewards` the same over the trajectories of a judged tree,
`evenly_drawn_rewards` its counterpart for unevenly explored trees, `visit_weighted_rewards` what the published code
computes instead. None of them uses the values that guided the search; `search_values` are these values.
"""

from __future__ import annotations

from typing import Any

from mcts.expected_outcomes import estimates
from mcts.tree import Tree


def shortest_path_reward(outcome: float, *, steps: int, alpha: float) -> float:
    """Answer quality discounted by path length: ``outcome * alpha**steps``.

    outcome: quality of the answer (token F1 by default), in [0, 1].
    steps: edges from the root to the answer, at least 1.
    alpha: discount per step, in (0, 1].
    Source: SPRE, arXiv 2505.14069, Eq. 1 (one term of the mean).
    """
    return outcome * float(alpha**steps)


def spre_rewards(tree: Tree[Any], *, alpha: float) -> list[float | None]:
    """Reward of each node by id: the mean discounted outcome over the real continuations through it.

    A terminal's reward is exact: only its own path runs through it. None where no continuation counts.
    Source: arXiv 2505.14069, Eq. 1.
    """
    rewards: list[float | None] = []
    for node in tree.nodes:
        terms = [shortest_path_reward(rollout.outcome, steps=rollout.steps, alpha=alpha) for rollout in node.rollouts]
        rewards.append(sum(terms) / len(terms) if terms else None)
    return rewards


def distinct_spre_rewards(tree: Tree[Any], *, alpha: float) -> list[float | None]:
    """Reward of each node by id: the mean discounted outcome of the distinct completed trajectories through it, each
    once, however often its answer was drawn. None below which no answer is known: the branch is pruned.

    Source: arXiv 2505.14069, Eq. 1 over the completed trajectories of Appendix A; pruning, Section 2.2.3. As
    everywhere, a path counts up to the first step none of whose draws counts.
    """
    sums, counts = [0.0] * len(tree), [0] * len(tree)
    for node in reversed(tree.nodes):  # children have higher ids than their parents
        if node.step is not None and node.terminal and node.step.outcome is not None:
            sums[node.id] += shortest_path_reward(node.step.outcome, steps=node.depth, alpha=alpha)
            counts[node.id] += 1
        if node.parent_id is not None and node.counts_above:
            sums[node.parent_id] += sums[node.id]
            counts[node.parent_id] += counts[node.id]
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def evenly_drawn_rewards(tree: Tree[Any], *, alpha: float) -> list[float | None]:
    """Reward of each node by id: its expected discounted outcome, every draw of a state weighing the same.

    Equal to `spre_rewards` where every draw was followed to one answer; unlike it, not biased towards places where the
    search sampled more. Equivalent siblings share one reward. See `mcts.expected_outcomes`.
    """
    found = estimates(tree, lambda end: shortest_path_reward(end.outcome, steps=end.steps, alpha=alpha))
    return [None if each is None else each.mean for each in found]


def visit_weighted_rewards(tree: Tree[Any], *, alpha: float) -> list[float | None]:
    """Reward of each node by id, bottom up: leaves ``outcome * alpha**depth``, others the mean of their
    children's rewards weighted by visits, leaving out children none of whose draws counts. None for unfinished leaves,
    answers without an outcome, and nodes that rest only on these.

    Source: the published ReasonRAG pair builder (alpha .9), not its paper.
    """
    rewards: list[float | None] = [None] * len(tree)
    for node in reversed(tree.nodes):  # children have higher ids than their parents
        if node.step is not None and node.step.terminal:
            if node.step.outcome is not None:
                rewards[node.id] = shortest_path_reward(node.step.outcome, steps=node.depth, alpha=alpha)
            continue
        weighted = [(rewards[child.id], child.visits) for child in tree.children(node) if child.counts_above]
        counted = [(reward, visits) for reward, visits in weighted if reward is not None]
        total = sum(visits for _, visits in counted)
        if total:
            rewards[node.id] = sum(reward * visits for reward, visits in counted) / total
    return rewards


def search_values(tree: Tree[Any], *, alpha: float) -> list[float | None]:  # noqa: ARG001 - as all rules have it
    """Reward of each node by id: the mean of the values that the search backed up for it; None without any.

    alpha: not used by this rule; the search has discounted its values.
    """
    return [node.value if node.counted else None for node in tree.nodes]


ANSWER_REWARDS = {
    "spre": spre_rewards,
    "spre_even": evenly_drawn_rewards,
    "outcome": visit_weighted_rewards,
}
"""The rules that are computed for every tree."""
REWARDS = ANSWER_REWARDS | {
    "spre_distinct": distinct_spre_rewards,
    "value": search_values,
    "rank": search_values,
}
"""Every rule by its name. `rank`: the values are ranks within a state, 1 / (1 + rank)."""
