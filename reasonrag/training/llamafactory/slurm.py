"""A batch script for Slurm that runs the same `reasonrag train` on every machine of a job.

Decides what the script requests and how each machine learns its rank and the first machine's address. A requeued job
resumes from its last checkpoint, because the command itself does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reasonrag.training.settings import PORT

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --output={log}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@180
# Yours to fill in: #SBATCH --time=24:00:00 --partition=.. --account=.. --mem=..
#
# Written by reasonrag train. Submit it: sbatch {script}
# Requeued or submitted again, it continues from the last checkpoint. Every machine must see {out} and the
# data at the same place.

set -euo pipefail
cd {here}
{exports}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_ADDR

# one task a machine; LLaMA-Factory starts one process for each of its GPUs, which meet at the first machine
srun --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c {task}
"""


class Machines(NamedTuple):
    """nodes: how many; gpus: of each. port: where the first one listens."""

    nodes: int
    gpus: int
    port: int = PORT


def batch_script(
    words: Sequence[str],
    *,
    python: Path,
    exported: Mapping[str, str],
    machines: Machines,
    script: Path,
    out: Path,
    here: Path,
) -> str:
    """words: flags of `train` without those about machines. python: the interpreter of reasonrag. exported: environment
    variables that the job needs."""
    nodes, gpus, port = machines
    command = [str(python), "-m", "reasonrag", "train", *words]
    task = (
        f'exec {shlex.join(command)} --nodes {nodes} --node-rank "$SLURM_NODEID" --gpus-per-node {gpus} '
        f'--master "$MASTER_ADDR:{port}"'
    )
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in exported.items())
    return _SCRIPT.format(
        name=_word(f"train-{out.name}"),
        nodes=nodes,
        gpus=gpus,
        cpus=8 * gpus,
        log=str(out / "slurm-%j.log").replace("\n", " "),
        script=shlex.quote(str(script)).replace("\n", " "),
        out=str(out).replace("\n", " "),
        here=shlex.quote(str(here)),
        exports=exports,
        task=shlex.quote(task),
    )


def _word(text: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in text)
