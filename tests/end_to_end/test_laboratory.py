"""The laboratory: what benchmarks/ call the value of a step is what its policy really gets; every recipe is a row."""

from __future__ import annotations

import random
import statistics
from functools import cache

import pytest
from decision_process import LabQuestion, Setting, State
from search_economy import ALIKE, GUESSING, PLANS, VARIATIONS, Plan, measure
from search_economy import SETTINGS as MEASURED
from verdicts import Verdicts, right_of_all, ties_of_queries

from mcts import RECIPES

SETTINGS = (
    Setting("plain", early=0.0, luck=0.0),
    Setting("guesses", good=0.8, early=0.4, luck=0.5, partial=0.5),
    Setting("hard", facts=3, good=0.7, hard=0.6),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_a_state_is_worth_what_its_policy_gets_on_average(setting: Setting) -> None:
    """The mean discounted F1 of many sampled runs, within four standard errors."""
    question, dice = LabQuestion(setting, 7, alpha=0.9), random.Random(1)
    rewards = []
    for _ in range(20_000):
        step = question.sample(State(), dice)
        while step.after is not None:
            step = question.sample(step.after, dice)
        rewards.append(step.f1 * 0.9 ** (step.state.layer + 1))
    error = statistics.stdev(rewards) / len(rewards) ** 0.5
    assert question.value(State()) == pytest.approx(statistics.fmean(rewards), abs=4 * error)


@cache
def kept(plan: str, setting: Setting) -> list[Verdicts]:
    [found] = (each for each in (*PLANS, *VARIATIONS) if each.name == plan)
    return [*measure(found, setting, 5)[found.rules].questions]


def test_where_several_queries_reveal_the_same_few_kept_pairs_of_queries_are_ties() -> None:
    """As they share their estimate; without that every fifth is one, or more."""
    assert ties_of_queries(kept("economy", ALIKE)) <= 0.05
    assert ties_of_queries(kept("economy, findings apart", ALIKE)) >= 0.2
    for each in (kept("economy", ALIKE), kept("economy, findings apart", ALIKE)):
        assert sum(found.right for found in each) > 30


@pytest.mark.parametrize("setting", MEASURED, ids=lambda each: each.name)
def test_steps_that_share_what_they_reveal_make_no_setting_s_pairs_worse(setting: Setting) -> None:
    """Of all that are kept at least as many are right as where every step is valued for itself."""
    assert right_of_all(kept("economy", setting)) >= right_of_all(kept("economy, findings apart", setting))


@pytest.mark.parametrize("plan", PLANS, ids=lambda each: each.name)
def test_every_recipe_is_explored_and_labelled_by_its_own_rules(plan: Plan) -> None:
    """A row for each, whose pairs are mostly right; the same question gives the same row again."""
    tally = measure(plan, GUESSING, 10)[plan.rules]
    assert tally.sum("right") > 2 * tally.sum("wrong") > -1
    assert measure(plan, GUESSING, 10)[plan.rules].questions == tally.questions


def test_no_recipe_lacks_a_row() -> None:
    """A recipe that users can run for pairs is one that was measured; `chains` are attempts for other trainings."""
    assert {each.recipe.name for each in PLANS} == set(RECIPES) - {"chains"}
