"""The ways to install that the README names beside make: a copy of the sources, the real tools, the real registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNREACHABLE = ("error sending request", "Failed to establish a new connection", "Temporary failure in name resolution")


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
