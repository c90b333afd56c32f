"""The ways to install that the README names beside make, and what is released: the real tools, the real registry; the
size of what is installed; and the packages that reasonrag shares an environment with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from core_size import installed, measured, wheel

from tests.helpers.beside_others import OTHERS, UNREACHABLE, resolved, version_in

ROOT = Path(__file__).parents[2]
MOST_PACKAGES, MOST_MB = 42, 180
"""Without extras, reasonrag among them; `make core-size` lists them."""


@pytest.mark.parametrize(
    "commands",
    [
        ("uv run reasonrag --version",),
        ("pipx install .", "bin/reasonrag --version"),
    ],
    ids=("uv", "pipx"),
)
def test_the_readme_installs_without_make(commands: tuple[str, ...]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        if name.startswith(("mcts/", "preference/", "reasonrag/", "train_configs/")) or "/" not in name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, name)
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PIPX_HOME": str(Path("home").resolve()),
        "PIPX_BIN_DIR": str(Path("bin").resolve()),
    }
    for command in commands:
        done = subprocess.run(command.split(), env=variables, capture_output=True, text=True, check=False)
        if any(each in done.stderr for each in UNREACHABLE):
            pytest.skip(f"{command}: no package registry can be reached")
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("reasonrag ")


def test_the_core_is_small_and_matplotlib_would_make_it_too_large(tmp_path: Path) -> None:
    """Without extras. matplotlib was a dependency of the core until five drawings became tables."""
    environment = tmp_path / "environment"
    try:
        packages, mb = measured(installed(wheel(tmp_path), into=environment))
        more_packages, more_mb = measured(installed("matplotlib>=3.9,<4", into=environment))
    except RuntimeError as error:
        if any(each in str(error) for each in UNREACHABLE):
            pytest.skip("no package registry can be reached")
        raise
    assert (len(packages) <= MOST_PACKAGES, mb <= MOST_MB) == (True, True), f"{len(packages)} packages, {mb:.1f} MB"
    assert (len(more_packages) > MOST_PACKAGES, more_mb > MOST_MB) == (True, True)


def test_the_oldest_versions_that_are_allowed_do_the_main_job() -> None:
    """The help, too: it is made of classes of typer that changed more than once."""
    install = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", "old/bin/python"]
    venv.create("old")
    for command in (
        [*install, "--resolution", "lowest-direct", "--requirements", ROOT / "pyproject.toml"],
        [*install, "--no-deps", wheel(Path())],
        ["old/bin/reasonrag", "generate", "--dataset", "atlas", "--limit", "3", "--run", "run"],
        ["old/bin/reasonrag", "pairs", "run", "--out", "data"],
        ["old/bin/reasonrag", "pairs", "--help-all"],
        ["old/bin/reasonrag", "index", "build", "--help"],
    ):
        done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
        if any(each in done.stderr for each in UNREACHABLE):
            pytest.skip("no package registry can be reached")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_released_runs_where_no_clone_is(kind: str, tmp_path: Path) -> None:
    """The commands that the workflow runs on macOS and Windows, here on the system at hand."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = (tmp_path / "dist").iterdir()
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    commands = re.findall(r"- run: (reasonrag .*)", workflow)
    assert [each.split()[1] for each in commands] == ["generate", "pairs"]
    for command in commands:
        uvx = [str(Path(sys.executable).with_name("uvx")), "--from", str(built), *command.split()]
        done = subprocess.run(uvx, cwd=tmp_path, capture_output=True, text=True, check=False)
        if any(each in done.stderr for each in UNREACHABLE):
            pytest.skip("no package registry can be reached")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "first" / "RAG_ProGuide.json").is_file()


@pytest.mark.parametrize("other", [*OTHERS, "openai==2.0.0"])
def test_one_environment_takes_reasonrag_and(other: str) -> None:
    """With the extras that bring no models."""
    done = resolved(other)
    if any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"{other}: no package registry can be reached")
    assert done.returncode == 0, f"reasonrag cannot be installed beside {other}: {done.stderr}"
    name, _, version = other.partition("==")
    assert (version_in(done.stdout, name), version_in(done.stdout, "openai")[:2] in ("2.", "3.")) == (version, True)


def test_what_excludes_another_package_is_named() -> None:
    """So that the test above can fail."""
    done = resolved("openai==1.109.1")
    if any(each in done.stderr for each in UNREACHABLE):
        pytest.skip("no package registry can be reached")
    assert done.returncode == 1
    assert "depends on openai==1.109.1 and openai>=2,<4" in " ".join(done.stderr.split())
