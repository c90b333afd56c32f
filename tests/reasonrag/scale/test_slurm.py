"""The script for Slurm, run by bash with a stand-in for sbatch: its array and its merge make the run of one process."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.scale.slurm import flag_words, write_slurm_script
from tests.helpers.command_line import Reasonrag

SBATCH = """\
#!/bin/bash
# Keeps how it was called, runs the job at once, array index by array index, and prints a job id as --parsable does.
printf '%s\\n' "$*" >> "$SBATCH_CALLS"
indices=none
for word; do case $word in --array=*) range=${word#--array=}; indices=$(seq "${range%-*}" "${range#*-}");; esac; done
for SLURM_ARRAY_TASK_ID in $indices; do
    export SLURM_ARRAY_TASK_ID
    bash "${@: -2:1}" "${@: -1}" >> "$SBATCH_CALLS.log" 2>&1 || echo "status $?" >> "$SBATCH_CALLS"
done
echo "$((1000 + $(wc -l < "$SBATCH_CALLS")));cluster"
"""


@pytest.fixture
def submit(tmp_path: Path) -> Any:
    """Submits a script in another working directory; what it printed, and the calls of sbatch."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    calls = tmp_path / "calls"
    variables = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SBATCH_CALLS": str(calls)}

    def run(script: Path) -> tuple[str, list[str]]:
        done = subprocess.run(["bash", script.absolute()], cwd="/", env=variables, capture_output=True, check=True)
        return done.stdout.decode(), calls.read_text().splitlines()

    return run


def test_the_array_and_its_merge_make_the_run_of_one_process(submit: Any, reasonrag: Reasonrag) -> None:
    asked: list[object] = ["--dataset", "atlas", "--limit", 6, "--model", "offline"]
    folder = Path('it\'s a "place" $HOME')
    folder.mkdir()
    script = folder / "job.sh"
    wrote = reasonrag("generate", *asked, "--run", folder / "run", "--slurm", script, "--workers", 2)
    assert f"next: read it, fill in time and partition, then: bash {shlex.quote(str(script))}" in wrote.out
    assert not (folder / "run").exists()
    printed, (array, merge) = submit(script)
    assert printed == "submitted 2 ranks as job 1001, and their merge as job 1002\n"
    assert array == f"--parsable --array=0-1 {script.absolute()} rank"
    assert re.fullmatch(
        rf"--parsable --dependency=afterany:1001 --output=.* {re.escape(str(script.absolute()))} merge", merge
    )
    one = package.generate(dataset="atlas", limit=6, model="offline", run="one")
    assert one.done == 6
    assert (folder / "run" / "rollouts.jsonl").read_bytes() == Path("one/rollouts.jsonl").read_bytes()


def test_the_words_of_a_script_are_read_as_the_flags_of_the_call() -> None:
    """By bash, and by the settings, which then are the same."""
    flags: dict[str, Any] = {
        "run": Path('a b/it\'s "c" $HOME `d` *'),
        "dataset": ["atlas", "the other's"],
        "extra_body": {"user": "o'neill", "nested": {"list": [1, None]}},
        "limit": 5,
        "alpha": 0.5,
        "gpu": False,
        "judge_gold": True,
        "yes": True,
        "model": None,
    }
    words = flag_words(flags)
    assert words[-2:] == ["--judge-gold", "--yes"]
    assert "--no-gpu" in words
    assert "--model" not in words
    assert flag_words({"yes": False}) == []
    write_slurm_script(
        Path("job.sh"), flags | {"on": "ray", "workers": 3, "slurm": Path("job.sh")}, ranks=3, run=flags["run"]
    )
    [line] = re.findall(r"exec (.* generate .*)", Path("job.sh").read_text())
    read = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"],
        capture_output=True,
        check=True,
        env={"SLURM_ARRAY_TASK_ID": "2", "ranks": "3"},
    ).stdout.decode()
    assert read.split("\0")[:-1] == [sys.executable, "-m", "reasonrag", "generate", *words, "--shard", "2/3"]


@pytest.mark.parametrize("given", [object(), [object()], len])
def test_an_object_of_this_process_is_refused(given: object) -> None:
    with pytest.raises(InputError, match="retriever: an object of this process cannot be given to a rank"):
        flag_words({"retriever": given})


@pytest.mark.parametrize(("flags", "said"), [([], "--workers N"), (["--workers", 2, "--on", "ray"], "without --on")])
def test_a_script_that_cannot_be_run_is_not_written(flags: list[object], said: str, reasonrag: Reasonrag) -> None:
    refused = reasonrag("generate", "--slurm", "job.sh", *flags)
    assert (refused.status, said in refused.err) == (2, True)
    assert not Path("job.sh").exists()
