"""A pair's tags: what the data are told of it beside its label.

Decides each tag by the two steps and the tree's gold answers. Drops nothing.
"""

from __future__ import annotations

from preference.candidate_records import GoldVerdict, PairRecord, StateRecord, Tag, support_decides
from preference.margin_and_confidence import TOLERANCE, Sibling, rests_on_one_draw
from preference.records import RolloutNode, RolloutRecord


def with_golden_tags(state: StateRecord) -> StateRecord:
    """The state with the tag `golden_rejected` where its pairs, whose sides may have been exchanged, deserve it."""
    steps = {step.id: step for step in state.steps}

    def tagged(pair: PairRecord) -> PairRecord:
        found = support_decides(state.golden_answers, steps[pair.chosen], steps[pair.rejected])
        if found == ("golden_rejected" in pair.tags):
            return pair
        tags = [tag for tag in pair.tags if tag != "golden_rejected"]
        return pair.model_copy(update={"tags": [*tags, "golden_rejected"] if found else tags})

    return state.model_copy(update={"pairs": [tagged(pair) for pair in state.pairs]})


def tags_without_values(pair: PairRecord) -> list[Tag]:
    """The tags of a pair whose label the values of the search did not decide."""
    return [tag for tag in pair.tags if tag not in ("efficiency_only", "one_draw")]


def gold_verdict(chosen: RolloutNode, rejected: RolloutNode) -> GoldVerdict:
    types = chosen.action_type, rejected.action_type
    if types not in (("query", "query"), ("evidence", "evidence")) or chosen.gold is None or rejected.gold is None:
        return "unknown"
    if chosen.gold == rejected.gold:
        return "tie"
    return "right" if chosen.gold > rejected.gold else "wrong"


def tags_of(rollout: RolloutRecord, chosen: Sibling, rejected: Sibling, sure: float | None) -> list[Tag]:
    tags: list[Tag] = []
    left, right = chosen.mean_outcome, rejected.mean_outcome
    if rollout.recipe.reward != "rank" and left is not None and right is not None and abs(left - right) <= TOLERANCE:
        tags.append("efficiency_only")
    both_answer = chosen.node.action_type == rejected.node.action_type == "answer"
    if both_answer and rollout.golden_answers and chosen.covers == rejected.covers:
        tags.append("style_only")
    if sure is not None and rests_on_one_draw(chosen.node, rejected.node):
        tags.append("one_draw")
    return tags
