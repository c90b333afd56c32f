"""What is installed: the wheel holds what the code reads, importing it is light, and the shipped settings parse.

And the laws of the house that tests/test_house.py has not: what modules are called, and what they take.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import reasonrag
from mcts import RECIPES
from preference.records import SCHEMA_VERSION
from reasonrag.agent.prompting import load_prompts

ROOT = Path(__file__).parents[2]
PACKAGES = ("mcts", "preference", "reasonrag")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The project built as a user's pip builds it."""
    place = tmp_path_factory.mktemp("wheel")
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(ROOT)]
    subprocess.run([sys.executable, "-m", *build], check=True)
    [path] = place.glob("reasonrag-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_module_and_file_that_is_read_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Files that are no Python are forgotten easily, and missed only on another machine. Neither tests nor data travel
    with the package."""
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")} <= names
    assert {f"reasonrag/prompts/{name}.txt" for name in load_prompts().texts} <= names
    assert {f"mcts/recipes/{name}.yaml" for name in RECIPES} <= names
    assert {"reasonrag/templates/page.html.j2", "reasonrag/templates/view.html.j2"} <= names
    assets = (ROOT / "reasonrag" / "viewing" / "assets").rglob("*")
    assert {str(path.relative_to(ROOT)) for path in assets if path.is_file()} <= names
    shipped = {path.relative_to(ROOT) for path in (ROOT / "train_configs").rglob("*") if path.is_file()}
    assert {f"reasonrag/{path}" for path in shipped} <= names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_wheel_works_where_the_project_is_not(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked alone, with no source beside it, it runs the main job."""
    wheel.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import mcts, preference, reasonrag\n"
        f"assert all(each.__file__.startswith({str(tmp_path)!r}) for each in (mcts, preference, reasonrag))\n"
        "print(reasonrag.generate(dataset='atlas', limit=2, run='runs/a').done)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "2\n"


def test_an_mcts_that_is_not_ours_is_named_in_one_line(tmp_path: Path) -> None:
    """As the one of the package registry, a module. Nothing of ours can be imported then, so every command says it."""
    other = tmp_path / "mcts.py"
    other.write_text("class mcts: ...\n", "utf-8")
    command = [sys.executable, "-m", "reasonrag", "doctor"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: Python imports another mcts ({other}), not the one of reasonrag ({ROOT / 'mcts'}). "
        "Remove that one (pip uninstall mcts), or install reasonrag elsewhere\n"
    )


def test_a_type_checker_finds_a_misspelled_setting(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """By the stub that the build made, which editors read, too."""
    wheel.extractall(tmp_path / "site")
    script = tmp_path / "script.py"
    script.write_text(
        "from reasonrag import generate\n"
        'generate(dataset="atlas", limit=4, outcome=lambda question, answer: 1.0)\n'
        'generate(dataset="atlas", limt=4)\n'
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    paths = os.environ | {"MYPYPATH": str(tmp_path / "site")}
    said = subprocess.run(command, cwd=tmp_path, env=paths, check=False, capture_output=True, text=True).stdout
    found = [line.partition(": error: ")[0].rpartition(":")[2] for line in said.splitlines() if ": error: " in line]
    assert found == ["3"], said


HEAVY = {"numpy", "bm25s", "Stemmer", "openai", "aiohttp", "tenacity", "datasets", "torch", "faiss", "genai_prices"}
HELP = (
    "from reasonrag.cli import run; "
    "assert not any([run([*each, '--help']) for each in ([], ['generate'], ['pairs'], ['index', 'build'])])"
)


@pytest.mark.parametrize(
    ("code", "heavy"), [*((f"import {each}", HEAVY | {"rich"}) for each in PACKAGES), (HELP, HEAVY)]
)
def test_importing_and_help_load_nothing_heavy(code: str, heavy: set[str]) -> None:
    """Not even numpy: who only reads records waits for pydantic alone."""
    code = f"import sys; {code}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(done.stdout.splitlines()[-1].split()) & heavy


def test_no_file_of_the_project_is_large_or_binary_data() -> None:
    """Indexes, runs and other people's data stay out of the repository. uv.lock lists 265 packages; the student that
    all seeds of the proof begin as would be another one on another machine."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("no git, or no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    large = {"uv.lock", "benchmarks/proof/base/model.safetensors"}
    for name in set(filter(None, listed.stdout.decode().split("\0"))) - large:
        assert (ROOT / name).stat().st_size < 300_000, name


def test_the_page_on_formats_names_the_schema_that_is_written() -> None:
    """A new schema version without its description is half a change."""
    assert f"`{SCHEMA_VERSION}`" in (ROOT / "docs" / "reference" / "formats" / "rollouts.md").read_text("utf-8")


# -- the laws of the house -------------------------------------------------------------------------------------

MAY_TAKE_SETTINGS = ("settings.py", "plan.py", "commands.py", "options.py", "signatures.py", "cli.py")
"""Modules that define settings, fill them, or hold those of a command against each other (plan.py)."""
RECORDS = (
    "Question",
    "Retrieval",
    "Reading",
    "Model",
    "ValueModel",
    "Limit",
    "Budget",
    "Agent",
    "Check",
    "Compare",
    "Decontamination",
)
"""Of settings; functions may take them."""
TAKE_SETTINGS = {
    "reasonrag/curation/pairs._judge": "opens the judge of the public call",
    "reasonrag/curation/pairs._replaces_other_runs": "asks twice, before the lock and under it",
    "reasonrag/curation/pairs._sources": "refuses labels that go with no source",
    "reasonrag/curation/pairs._witnesses": "refuses what a critic does not go with",
    "reasonrag/curation/warm_up/warm_up._Plan": "makes the configuration of them",
    "reasonrag/curation/warm_up/warm_up._plan": "turns them into the plan of the rows",
    "reasonrag/evaluation/ask._ask": "the body of the public call",
    "reasonrag/evaluation/evaluate._evaluate": "the body of the public call",
    "reasonrag/evaluation/evaluate._Setup": "whose questions, judge and checks stand beside it",
    "reasonrag/exploration/explore.check_whole": "checks them before ranks get them",
    "reasonrag/exploration/explore.explore": "the body of the public call",
    "reasonrag/run_config.shown_settings": "writes whatever they are",
    "reasonrag/scale/merge._finish": "proposes the command that gives them",
    "reasonrag/scale/ray_ranks.__init__": "has those of one rank",
    "reasonrag/scale/ray_ranks.explore_on_ray": "the body of the public call, on Ray",
    "reasonrag/scale/ray_ranks.RayRanks": "gives every rank its own",
    "reasonrag/curation/question_writing/writing._write": "the body of the public call",
    "reasonrag/studies/calibrate._calibrate": "the body of the public call",
    "reasonrag/studies/tune._tune": "the body of the public call",
    "reasonrag/studies/tune._command": "tells those of a suggestion",
    "reasonrag/studies/tune._changed": "makes the settings of a trial from those of the base",
    "reasonrag/studies/tune.Trial": "is a run of generate, with settings of its own",
    "reasonrag/studies/tune.plan_trials": "makes the settings of each trial from those of the base",
    "reasonrag/training/policy/rounds._Rounds": "gives every round its own",
    "reasonrag/training/train._script": "repeats them in a batch script",
}
"""What else takes or holds a whole settings object, and why."""
MODULES = sorted(
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
FOLDERS = sorted({parent for module in MODULES for parent in module.parents if parent.name})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_says_what_it_is_for(folder: Path) -> None:
    """The docstring of its `__init__` is one sentence, and all there is in it; that of a package is its public face."""
    if str(folder) not in PACKAGES:
        room = ast.parse((ROOT / folder / "__init__.py").read_text("utf-8"))
        sentence = ast.get_docstring(room) or ""
        assert (len(room.body), len(re.findall(r"[.!?](?=\s|$)", sentence))) == (1, 1), sentence


def test_no_room_bears_the_name_of_a_public_call() -> None:
    """`import reasonrag.x` would put the room where the call is."""
    assert not {each.name for each in FOLDERS if each.parent.name == "reasonrag"} & set(reasonrag.__all__)


def test_no_module_imports_what_is_private_to_another() -> None:
    """A name with an underscore may change without a look at who else uses it."""
    private = [
        f"{module} imports {alias.name} from {each.module}"
        for module in MODULES
        for each in ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
        if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] in PACKAGES
        for alias in each.names
        if re.match("_(?!_)", alias.name)
    ]
    assert private == []


def test_what_benchmarks_and_examples_import_is_there() -> None:
    """Most are never run by a test, and none is checked by mypy."""
    imported = {
        (each.module or "", alias.name)
        for folder in ("benchmarks", "docs/examples")
        for script in (ROOT / folder).glob("*.py")
        for each in ast.walk(ast.parse(script.read_text("utf-8")))
        if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] in PACKAGES
        for alias in each.names
    }
    assert len(imported) > 100
    assert [each for each in sorted(imported) if not hasattr(importlib.import_module(each[0]), each[1])] == []


def test_inner_functions_take_values_or_records_not_settings() -> None:
    """So that a function's parameters say what it reads."""
    taking = {
        f"{module.with_suffix('')}.{each.name}"
        for module in MODULES
        if module.name not in MAY_TAKE_SETTINGS
        for each in ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and any(re.search(rf"(?<!{')(?<!'.join(RECORDS)})Settings\b", annotation) for annotation in _annotations(each))
    }
    assert sorted(taking - TAKE_SETTINGS.keys()) == [], "take the values that are read, or a record of them"
    assert sorted(TAKE_SETTINGS.keys() - taking) == [], "these take no settings any more: take them out of the list"


def _annotations(of: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """The annotations of a function's parameters, or of a class's fields."""
    if isinstance(of, ast.ClassDef):
        found: list[ast.expr | None] = [each.annotation for each in of.body if isinstance(each, ast.AnnAssign)]
    else:
        found = [each.annotation for each in ast.walk(of.args) if isinstance(each, ast.arg)]
    return [ast.unparse(each) for each in found if each]
