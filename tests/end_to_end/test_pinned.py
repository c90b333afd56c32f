"""What the project is built from is named exactly: uv.lock agrees with pyproject.toml, workflows pin their actions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
READ_BY_UV = ("pyproject.toml", "uv.lock", "README.md", "LICENSE", "hatch_build.py", "reasonrag/__init__.py")


@pytest.mark.parametrize(
    ("file", "before", "after", "agrees"),
    [
        ("uv.lock", "", "", True),
        ("pyproject.toml", '"tenacity>=9"', '"tenacity>=8"', False),
    ],
    ids=("as it is", "another dependency"),
)
def test_the_lock_is_that_of_pyproject(file: str, before: str, after: str, *, agrees: bool) -> None:
    """uv sees it without a network. After a change of a dependency: `.venv/bin/uv lock`."""
    for name in READ_BY_UV:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes((ROOT / name).read_bytes())
    as_it_is = Path(file).read_text("utf-8")
    Path(file).write_text(re.sub(before, after, as_it_is), "utf-8")
    assert (Path(file).read_text("utf-8") == as_it_is) == agrees
    check = ["lock", "--check", "--offline", "--no-config", "--cache-dir", "cache", "--python", sys.executable]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(
        [Path(sys.executable).with_name("uv"), *check], env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == agrees, done.stderr


def test_the_lock_has_one_registry_with_a_public_name_and_a_hash_of_each_file() -> None:
    """No mirror of the machine that made it: others can install from it, and get the same files."""
    lock = (ROOT / "uv.lock").read_text("utf-8")
    files, hashed = re.findall(r'url = "', lock), re.findall(r'url = "([^"]+)", hash = "sha256:[0-9a-f]{64}"', lock)
    assert len(files) == len(hashed) > 0
    for addresses in (hashed, re.findall(r'registry = "([^"]+)"', lock)):
        [origin] = {"/".join(each.split("/")[:3]) for each in addresses}
        assert re.fullmatch(r"https://[a-z.]+\.(com|org)", origin)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_actions_by_their_commit(workflow: Path) -> None:
    """A tag can be moved, a commit cannot; the tag stands behind it for readers."""
    used = re.findall(r"uses: *(.*)", workflow.read_text("utf-8"))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} +# v[\d.]+", each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_only_a_job_that_runs_no_code_of_ours_may_sign_in_as_the_project(workflow: Path) -> None:
    """`id-token: write` and every other right to write are the deploying job's: it builds and installs nothing."""
    loaded: dict[str, Any] = yaml.safe_load(workflow.read_text("utf-8"))
    assert "write" not in str(loaded["permissions"])
    for name, job in loaded["jobs"].items():
        writes = "write" in str(job.get("permissions"))
        runs_ours = any("run" in step or "checkout" in step["uses"] for step in job["steps"])
        assert not (writes and runs_ours), name
