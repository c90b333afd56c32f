"""What is installed: the wheel holds what the code reads, importing it is light, and the shipped settings parse."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from preference.export.formats import FORMATS, dataset_info
from preference.records import SCHEMA_VERSION
from reasonrag.agent.prompting import PROMPT_NAMES

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


def test_the_wheel_holds_the_prompts_and_the_type_markers(wheel: zipfile.ZipFile) -> None:
    """Files that are no Python are forgotten easily, and missed only on the machine of somebody else."""
    names = set(wheel.namelist())
    assert {f"reasonrag/prompts/{name}.txt" for name in PROMPT_NAMES} <= names
    assert {"reasonrag/templates/audit.html.j2", "reasonrag/templates/view.html.j2"} <= names
    assets = (ROOT / "reasonrag" / "viewing" / "assets").rglob("*")
    assert {str(path.relative_to(ROOT)) for path in assets if path.is_file()} <= names
    shipped = {path.relative_to(ROOT) for path in (ROOT / "train_configs").rglob("*") if path.is_file()}
    assert {f"reasonrag/{path}" for path in shipped} <= names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Neither tests nor data travel with the package."""
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    installed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert modules <= installed
    assert {name.split("/")[0] for name in installed} == set(PACKAGES)


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


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_loads_nothing_heavy(package: str) -> None:
    """Not even numpy: who only reads records waits for pydantic alone."""
    code = f"import sys, {package}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & {"numpy", "bm25s", "openai", "aiohttp", "datasets", "torch", "faiss", "rich"}


@pytest.mark.parametrize("path", sorted((ROOT / "train_configs").glob("*.yaml")), ids=lambda path: path.name)
def test_a_training_configuration_reads_our_export(path: Path) -> None:
    """It names a data set of `dataset_info.json`, of pairs where its stage ranks, and the template that exists."""
    settings = yaml.safe_load(path.read_text("utf-8"))
    assert settings["template"] == "qwen"
    if "export_dir" in settings:
        return
    entry = dataset_info((name, "train") for name in FORMATS)[settings["dataset"]]
    assert entry.get("ranking", False) is (settings["stage"] in ("dpo", "rm"))


def test_no_file_of_the_project_is_large_or_binary_data() -> None:
    """Indexes, runs and other people's data stay out of the repository."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("no git, or no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        assert (ROOT / name).stat().st_size < 300_000, name


def test_the_page_on_formats_names_the_schema_that_is_written() -> None:
    """A new schema version without its description is half a change."""
    assert f"`{SCHEMA_VERSION}`" in (ROOT / "docs" / "formats.md").read_text("utf-8")
