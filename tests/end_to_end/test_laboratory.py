"""The laboratory: what benchmarks/ call the value of a step is what its policy really gets; every recipe is a row."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest
from decision_process import LabQuestion, Setting, State
from search_economy import GUESSING, PLANS, WITH_CRITICS, Exploration, Plan, measure

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


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_chances_of_a_state_s_steps_sum_to_one(setting: Setting) -> None:
    """In every state that can be reached."""
    question, seen, ahead = LabQuestion(setting, 3, alpha=0.9), set(), [State()]
    while ahead:
        state = ahead.pop()
        if state in seen:
            continue
        seen.add(state)
        steps = question.choices(state)
        assert sum(chance for _, chance in steps) == pytest.approx(1)
        ahead += [step.after for step, _ in steps if step.after is not None]
    assert max(state.layer for state in seen) < setting.max_steps


def test_a_lucky_guess_is_worth_no_more_than_an_unlucky_one() -> None:
    """The truth of a decision is its expectation, not what came of it."""
    question = LabQuestion(Setting("guesses", early=0.4, luck=0.5), 1, alpha=0.9)
    lucky, unlucky = (step for step, _ in question.choices(State()) if step.type == "answer")
    assert lucky.f1 > unlucky.f1
    assert question.worth(lucky) == question.worth(unlucky)


@pytest.mark.parametrize("plan", PLANS, ids=lambda each: each.name)
def test_every_recipe_is_explored_and_labelled_by_its_own_rules(plan: Plan) -> None:
    """A row for each, whose pairs are mostly right; the same question gives the same row again."""
    tally = measure(plan, GUESSING, 10)[plan.rules]
    assert tally.sum("right") > 2 * tally.sum("wrong") > -1
    assert measure(plan, GUESSING, 10)[plan.rules].questions == tally.questions


CRITICS = [plan for plan in WITH_CRITICS if plan.critic == 0.4]


@pytest.mark.parametrize("plan", CRITICS, ids=lambda each: each.name)
def test_a_critic_thinks_the_same_of_a_step_whenever_it_is_asked_and_its_scores_are_counted(plan: Plan) -> None:
    """In another search of the question, too, whatever else that draws; no other plan has scores."""
    question = LabQuestion(GUESSING, 3, alpha=plan.search.alpha)
    one, other = (
        Exploration(replace(plan, recipe=plan.recipe.model_copy(update={"search": search})), question, "3").opinions
        for search in (plan.search, plan.search.model_copy(update={"max_calls": 60}))
    )
    both = one.keys() & other.keys()
    assert len(both) > 5
    assert {one[each] for each in both} == {other[each] for each in both}
    assert {one[each] - question.expectation(each) for each in both} != {0.0}
    tally = measure(plan, GUESSING, 3)[plan.rules]
    assert tally.sum("scores") > 5
    assert measure(PLANS[-1], GUESSING, 3)[PLANS[-1].rules].sum("scores") == 0


def test_a_draft_that_a_state_has_already_takes_no_place_of_another_in_the_laboratory_either() -> None:
    """Of the states of a critic's search, those with several steps that could be drawn have different ones."""
    plan = replace(CRITICS[0], critic=0.0)
    kept = drawn = 0
    for number in range(20):
        tree = Exploration(plan, LabQuestion(GUESSING, number, alpha=plan.search.alpha), f"{number}").search.tree
        states = [node for node in tree.nodes if node.children_ids and not node.terminal and node.id]
        kept += sum(len(node.children_ids) for node in states)
        drawn += sum(tree.drawn(node) for node in states)
    assert kept / drawn > 0.85


def test_no_recipe_lacks_a_row() -> None:
    """A recipe that users can run is one that was measured."""
    assert {each.recipe.name for each in PLANS} == set(RECIPES)


def test_a_judge_without_noise_ranks_by_what_is_true() -> None:
    """RAG-Gym's chain then always goes on with a step that none of its siblings beats."""
    [ragym] = (each for each in PLANS if each.name == "ragym")
    sure = Plan("sure", ragym.recipe, ragym.rules, noise=0.0)
    question = LabQuestion(GUESSING, 3, alpha=1.0)
    tree = Exploration(sure, question, "sure").search.tree
    followed = [node for node in tree.nodes[1:] if node.children_ids]
    for node in followed:
        siblings = tree.children(tree[node.parent_id or 0])
        assert question.worth(node.payload) == max(question.worth(each.payload) for each in siblings)
    assert len(followed) >= 2
    assert {len(tree.children(each)) for each in (tree.root, *followed)} == {10}
