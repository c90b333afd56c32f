"""Recipes by name and by file, with single values changed, and how what is wrong with one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcts import RECIPES
from preference.records import RecipeRef
from reasonrag.agent.recipe_file import KEYS, find_recipe, values_of
from reasonrag.data.yaml_text import parse_changes
from reasonrag.errors import InputError
from reasonrag.exploration.settings import GenerateSettings
from tests.helpers.command_line import Reasonrag

SHIPPED = Path(__file__).parents[3] / "mcts" / "recipes"
ECONOMY = (SHIPPED / "economy.yaml").read_text("utf-8")


@pytest.mark.parametrize("name", RECIPES)
def test_a_file_holds_what_the_recipe_of_its_name_holds(name: str) -> None:
    """And each of its lines is a value that can be changed."""
    shipped = RECIPES[name]
    assert find_recipe(str(SHIPPED / f"{name}.yaml"), {}) == find_recipe(name, {}) == shipped
    assert values_of(shipped).keys() <= set(KEYS)


WRONG = [
    (ECONOMY.replace("siblings: 4", "sibling: 4"), r"mine.yaml, line 6: .* 'search.sibling'; did you mean 'search.s"),
    (ECONOMY.replace("siblings: 4", "siblings: 0"), r"mine.yaml, line 6: must be at least 1 \(got 0\)"),
    (ECONOMY.replace("alpha: 0.9", "alpha: .inf"), r"mine.yaml, line 16: must be a finite number"),
    (ECONOMY.replace("evident_f1", "accuracy"), r"mine.yaml, line 18: there is no outcome 'accuracy'; choose from"),
    (ECONOMY.replace("exploration: 0", "exploration: 1"), "recipe mine.yaml: search.exploration is c of uct"),
    (ECONOMY.replace("reward: spre_even\n", ""), "recipe mine.yaml, reward: this is missing"),
    (f"{ECONOMY}siblings: 3\n", r"mine.yaml, line 22: a recipe has no 'siblings'; did you mean 'search.siblings'"),
    (f"{ECONOMY}name: mine\n", "mine.yaml, line 22: a recipe has no 'name'"),
    (f"{ECONOMY}reward: spre\n", "cannot read the recipe mine.yaml: line 22: duplicate key 'reward'"),
    ("search: !!python/object/apply:os.system [true]\n", "cannot read the recipe mine.yaml: line 1: "),
    ("x" * 300_000, "cannot read the recipe mine.yaml: |mine.yaml is larger than"),
    ("- 1\n", "mine.yaml is no recipe; write one `KEY: VALUE` a line"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_is_told_by_its_line(text: str, message: str) -> None:
    Path("mine.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        find_recipe("mine.yaml", {})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["search.siblngs=3"],
            "--set search.siblngs: a recipe has no 'search.siblngs'; did you mean 'search.siblings'",
        ),
        (["search.siblings"], "it takes KEY=VALUE, as in --set search.siblings=4"),
        (["reward=outcome", "reward=spre"], "--set reward is given twice"),
        (["reward=[1"], "the value is not valid YAML"),
        (["search=3"], "a recipe has no 'search'"),
        (["search.siblings=many"], r"--set search.siblings: must be a whole number \(got 'many'\)"),
    ],
)
def test_a_wrong_change_is_told_by_its_key(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_recipe("economy", parse_changes(words))


@pytest.mark.parametrize(
    "given",
    [
        {"search.siblings": 6, "search.max_calls": None, "reward": "outcome"},
        {"search": {"siblings": 6, "max_calls": None}, "reward": "outcome"},
        ["search.siblings=6", "search.max_calls=null", "reward=outcome"],
        "search.siblings=6 search.max_calls=null reward=outcome",
    ],
)
def test_values_are_changed_in_every_way_that_settings_are_given(given: Any) -> None:
    """Of Python or a table, nested or not; of flags; of the environment. Flags of the agent win."""
    settings = GenerateSettings.model_validate({"set": given, "max_steps": 5, "temperature": 0})
    found = settings.resolved_recipe
    assert (found.search.siblings, found.search.max_calls, found.reward) == (6, None, "outcome")
    assert (found.agent.max_steps, found.agent.temperature, found.name) == (5, 0.0, "economy")


def test_a_file_explores_as_its_values_say_and_is_named_after_it(reasonrag: Reasonrag) -> None:
    """Values that are the shipped ones make the same trees and labels under another name, also by the rules that go by
    what the search does; and the run can be calibrated when the file is gone."""
    Path("mine.yaml").write_text(ECONOMY.replace("128", "24"))
    common = ("--dataset", "atlas", "--model", "offline", "--limit", 6, "--json")
    mine = json.loads(reasonrag("generate", "--recipe", "mine.yaml", *common).out)
    assert (mine["recipe"], mine["run"]) == ("mine", "runs/atlas-train-mine")
    small = ("--set", "search.simulations=24", "--set", "search.max_calls=24")
    assert reasonrag("generate", *common, *small, "--run", "runs/own").status == 0
    rows = []
    for run in (mine["run"], "runs/own"):
        assert reasonrag("pairs", run, "--out", f"{run}-pairs", "--min-confidence", 0.5).status == 0
        states = [json.loads(line) for line in Path(f"{run}-pairs/candidates.jsonl").read_text().splitlines()]
        rows.append([[pair["confidence"] for pair in state["pairs"]] for state in states])
    assert rows[0] == rows[1] != []
    Path("mine.yaml").unlink()
    assert reasonrag("calibrate", mine["run"], "--revalue", 2, "--k", 2, "--yes").status == 0


def test_a_record_says_how_its_search_differs_from_the_recipe_of_its_name() -> None:
    """Nothing of a shipped recipe, whose records keep their bytes."""
    for recipe in RECIPES.values():
        ref = RecipeRef.of(recipe)
        assert ref.model_dump().keys() & {"equal_steps", "estimates"} == set()
        assert (ref.merges_equal, ref.shares_estimates) == (recipe.search.merge_equal, recipe.search.share_estimates)
        mine = RecipeRef.of(recipe.model_copy(update={"name": "mine"}))
        assert (mine.merges_equal, mine.shares_estimates) == (ref.merges_equal, ref.shares_estimates)
    changed = RecipeRef.of(find_recipe("economy", {"search.share_estimates": False, "search.merge_equal": False}))
    assert (changed.equal_steps, changed.estimates) == ("apart", "own")
    assert (changed.merges_equal, changed.shares_estimates) == (False, False)
