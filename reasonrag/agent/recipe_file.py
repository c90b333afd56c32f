"""The recipe of a run: a shipped one by its name, or the user's own file, with single values changed by --set.

Decides how a file is read, and how an error is told: by file and line, or by --set, with the nearest known key. Does
not know what a value does, nor which go together: `mcts.recipe` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from mcts import RECIPES, AgentDefaults, Recipe, SearchConfig
from preference import OutcomeName
from reasonrag.data.yaml_text import MOST_CHARACTERS, BoundedLoader, read_yaml
from reasonrag.errors import InputError, choices
from reasonrag.files import read_small_text
from reasonrag.settings import plain_message, shown_value

DEFAULT_RECIPE = "economy"
KEYS = [
    *(f"search.{name}" for name in SearchConfig.model_fields),
    *(f"agent.{name}" for name in AgentDefaults.model_fields),
    *(name for name in Recipe.model_fields if name not in ("name", "search", "agent")),
]
"""What a recipe holds: `reward`, `search.siblings`, .."""


def name_of_recipe(given: str) -> str:
    """The name that is recorded: of a shipped recipe its own, of a file that without its suffix."""
    return given if given in RECIPES else Path(given).stem


def find_recipe(given: str, changes: Mapping[str, Any]) -> Recipe:
    """The shipped recipe of this name, or a file's, with these values by key. Raises InputError with the place."""
    values, lines = (values_of(RECIPES[given]), {}) if given in RECIPES else _read(given)
    where = {key: f"{given}, line {line}" for key, line in lines.items()} | {key: f"--set {key}" for key in changes}
    values |= changes
    for key in values:
        if key not in KEYS:
            near = [each for each in KEYS if each.startswith(f"{key.partition('.')[0]}.")]
            raise InputError(f"{where.get(key, given)}: a recipe has no {key!r}; {choices(key, near or KEYS)}")
    outcome, outcomes = values.get("outcome"), get_args(OutcomeName)
    if isinstance(outcome, str) and outcome not in outcomes:
        raise InputError(
            f"{where.get('outcome', given)}: there is no outcome {outcome!r}; {choices(outcome, outcomes)}"
        )
    nested: dict[str, Any] = {"name": name_of_recipe(given)}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    try:
        return Recipe.model_validate(nested)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"][:2]))
        place = where.get(key) or f"recipe {given}{f', {key}' if key else ''}"
        got = f" (got {shown_value(values[key])})" if key in values else ""
        says = "this is missing" if first["type"] == "missing" else plain_message(first["msg"])
        raise InputError(f"{place}: {says}{got}") from error


def values_of(recipe: Recipe) -> dict[str, Any]:
    """By key, as --set names them."""
    return _flat(recipe.model_dump(exclude={"name"}) | {"agent": recipe.agent.model_dump()})


def _flat(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Values by dotted key, one level deep, as a recipe has sections."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name, is_section = _name(key), isinstance(value, Mapping)
        found |= {f"{name}.{_name(each)}": value[each] for each in value} if is_section else {name: value}
    return found


def _name(key: object) -> str:
    return key if isinstance(key, str) else shown_value(key)


def _read(given: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The values of a file, and the lines that they stand in."""
    path = Path(given)
    if not path.is_file():
        raise InputError(f"there is no recipe {given!r}, and no such file; {choices(given, RECIPES)}")
    try:
        text = read_small_text(path, MOST_CHARACTERS)
        values = read_yaml(text)
    except (OSError, ValueError) as error:  # ValueError: text that is no UTF-8, too
        raise InputError(f"cannot read the recipe {path}: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is no recipe; write one `KEY: VALUE` a line, as in mcts/recipes/economy.yaml")
    return _flat(values), _lines(yaml.compose(text, BoundedLoader))


def _lines(mapping: yaml.Node | None, section: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for key, value in mapping.value if isinstance(mapping, yaml.MappingNode) else ():
        name = f"{section}{key.value}"
        found |= {name: key.start_mark.line + 1} | ({} if section else _lines(value, f"{name}."))
    return found
