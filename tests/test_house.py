"""The house: how many lines each room may have, how many modules a folder, and that every room has its floor.

A change that needs more lines raises the room's number in its commit, and says why there. One that takes lines away
lowers it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = ("mcts", "preference", "tests", "benchmarks")
MOST_MODULES = 15
"""In a folder, `__init__.py` left out."""
MOST_LINES, MOST_VALUES = 60, 8  # of a function
LINES = {
    "mcts": 1602,
    "preference": 5261,
    "hall": 3898,
    "agent": 3159,
    "critics": 1100,
    "curation": 5393,
    "data": 3521,
    "evaluation": 4160,
    "exploration": 2649,
    "llm": 5060,
    "publishing": 1375,
    "retrieval": 3671,
    "run": 741,
    "scale": 565,
    "serving": 1166,
    "studies": 1317,
    "training": 5671,
    "viewing": 3509,
    "tests": 53811,
    "benchmarks": 11909,
}
"""Of Python in each room, blank lines and comments among them, as `ruff format` leaves them."""
PAGE_LINES = 2_800
PRODUCT = [room for room in LINES if room not in ("tests", "benchmarks")]


def modules_of(room: str) -> list[Path]:
    if room == "hall":  # what every room may use
        return [each for place in ("", "web", "processes") for each in (ROOT / "reasonrag" / place).glob("*.py")]
    place = ROOT / room if room in TOP_LEVEL else ROOT / "reasonrag" / room
    return list(place.rglob("*.py"))


def lines_of(room: str) -> int:
    return sum(len(each.read_bytes().splitlines()) for each in modules_of(room))


@pytest.mark.parametrize("room", LINES)
def test_a_room_keeps_to_its_lines(room: str) -> None:
    found = lines_of(room)
    assert 0 < found <= LINES[room], (
        f"{room} has {found} lines; what comes in pays by what goes out, or the commit raises the number and says why"
    )


def test_the_page_keeps_to_its_lines() -> None:
    """Scripts and styles of `reasonrag view`, without libraries, and the style that all pages share."""
    files = [each for each in (ROOT / "reasonrag" / "viewing" / "assets").iterdir() if each.is_file()]
    files.append(ROOT / "reasonrag" / "templates" / "page_style.css")
    assert sum(len(each.read_bytes().splitlines()) for each in files) <= PAGE_LINES


def test_every_room_has_a_number_and_a_floor() -> None:
    rooms = {each.parent.name for each in (ROOT / "reasonrag").glob("*/__init__.py")}
    assert rooms == {*PRODUCT, "web", "processes"} - {"mcts", "preference", "hall"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [floors] = [each["layers"] for each in contracts if each["name"].startswith("the rooms of reasonrag")]
    named = {word for floor in floors for word in floor.split() if word.startswith("reasonrag.")}
    assert {f"reasonrag.{room}" for room in rooms} <= named


def test_no_module_imports_itself_by_way_of_others() -> None:
    """An import within a function counts; one for types alone does not."""
    import grimp

    graph = grimp.build_graph("mcts", "preference", "reasonrag", exclude_type_checking_imports=True)
    TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}).prepare()


def test_a_second_tier_of_tests_names_what_exists() -> None:
    """A name that fits nothing would leave nothing out."""
    from tests.helpers.tiers import FIRST_TIER, REASONS

    fixtures = "".join(each.read_text("utf-8") for each in (ROOT / "tests").rglob("*.py"))
    for name in (*REASONS, *FIRST_TIER):
        file, _, test = name.partition("::")
        is_file = file.endswith(".py")
        text = (ROOT / "tests" / file).read_text("utf-8") if is_file else fixtures
        assert f"def {test or ('test_' if is_file else file)}" in text, name


def test_no_folder_has_more_than_fifteen_modules() -> None:
    folders = {each.parent for place in ("mcts", "preference", "reasonrag") for each in (ROOT / place).rglob("*.py")}
    counts = {
        str(each.relative_to(ROOT)): sum(file.name != "__init__.py" for file in each.glob("*.py")) for each in folders
    }
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


def test_no_function_is_long_or_takes_many_values() -> None:
    found = [
        f"{module.relative_to(ROOT)}: {each.name}"
        for module in (each for room in PRODUCT for each in modules_of(room))
        for each in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        if (each.end_lineno or 0) - each.lineno >= MOST_LINES
        or len([*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]) > MOST_VALUES
    ]
    assert found == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4, which Debian 12 has, matches that wrongly (github.com/python/cpython/issues/106052)."""
    found = [
        each for room in PRODUCT for each in modules_of(room) if re.search(r"[)\]][*+?]\+", each.read_text("utf-8"))
    ]
    assert found == []
