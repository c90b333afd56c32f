"""The array job of docs/how-to/scale-out.md, with a stand-in for sbatch: its ranks and their merge make the run of one
process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reasonrag as package
from tests.helpers.command_line import Reasonrag

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "scale-out.md"
SBATCH = """\
#!/bin/bash
# Keeps how it was called, runs the job at once, array index by array index, and prints a job id as --parsable does.
printf '%s\\n' "$*" >> "$CALLS"
if [ "${@: -2:1}" = --wrap ]; then
    bash -c "${@: -1}" >> "$CALLS.log" 2>&1 || echo "status $?" >> "$CALLS"
    exit
fi
range=$(sed -n 's/^#SBATCH --array=//p' "${@: -1}")
for SLURM_ARRAY_TASK_ID in $(seq "${range%-*}" "${range#*-}"); do
    export SLURM_ARRAY_TASK_ID
    bash "${@: -1}" >> "$CALLS.log" 2>&1 || echo "status $?" >> "$CALLS"
done
echo "1001;cluster"
"""


def programs(folder: Path, **scripts: str) -> Path:
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


def test_the_array_job_and_its_merge_make_the_run_of_one_process(tmp_path: Path) -> None:
    """As it stands on the page, with another folder and two ranks."""
    job, submit = re.findall(r"```text\n(#!/bin/bash\n#SBATCH.*?|job=.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert job.count("\n") == 12
    ours = f'#!/bin/bash\nexec {sys.executable} -m reasonrag "$@"\n'
    path = f"{programs(tmp_path / 'bin', sbatch=SBATCH, reasonrag=ours)}:{os.environ['PATH']}"
    shared, calls = tmp_path / "shared", tmp_path / "calls"
    shared.mkdir()
    (shared / "reasonrag.toml").write_text('[generate]\ndataset = "atlas"\nlimit = 6\nmodel = "offline"\n')
    for old, new in (("/shared", str(shared)), ("--array=0-7", "--array=0-1"), ("TASK_ID/8", "TASK_ID/2")):
        assert old in job + submit
        job, submit = job.replace(old, new), submit.replace(old, new)
    (tmp_path / "job.sh").write_text(job)
    variables = os.environ | {"PATH": path, "CALLS": str(calls)}
    subprocess.run(["bash", "-ec", submit], cwd=tmp_path, env=variables, check=True)
    assert calls.read_text().splitlines() == [
        "--parsable job.sh",
        f"--dependency=afterany:1001 --wrap cd {shared} && reasonrag merge runs/main",
    ], calls.with_name("calls.log").read_text()
    assert package.generate(dataset="atlas", limit=6, model="offline", run="one").done == 6
    assert (shared / "runs/main/rollouts.jsonl").read_bytes() == Path("one/rollouts.jsonl").read_bytes()


@pytest.mark.parametrize("flags", [["--workers", 2], ["--address", "auto"]])
def test_flags_of_a_launcher_are_refused_without_one(flags: list[object], reasonrag: Reasonrag) -> None:
    refused = reasonrag("generate", "--dataset", "atlas", "--limit", 1, "--run", "r", *flags)
    assert (refused.status, f"{flags[0]} goes with --on ray" in refused.err) == (2, True)
    assert not Path("r").exists()
