"""A batch script for Slurm that runs the same `reasonrag train` on every machine of a job.

Decides what the script requests and how each machine learns its rank and the first machine's address. A requeued job
resumes from its last checkpoint, because the command itself does.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reasonrag.training.llamafactory.launcher import PORT, Launch

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


@dataclass(frozen=True)
class SlurmScript:
    """A batch script to write. words: flags of `train`, which it repeats, without those about machines."""

    place: Path
    words: Sequence[str]

    def text(
        self,
        launch: Launch,
        *,
        gpus: int,
        exported: Mapping[str, str],
        out: Path,
        here: Path,
        python: str = sys.executable,
    ) -> str:
        """gpus: of each machine. exported: environment variables that the job needs. python: that has reasonrag."""
        port = launch.master[1] if launch.master else PORT
        task = (
            f"exec {shlex.join([python, '-m', 'reasonrag', 'train', *self.words])} --nodes {launch.nodes} "
            f'--node-rank "$SLURM_NODEID" --gpus-per-node {gpus} --master "$MASTER_ADDR:{port}"'
        )
        return _SCRIPT.format(
            name=re.sub(r"[^\w.-]", "-", f"train-{out.name}"),
            nodes=launch.nodes,
            gpus=gpus,
            cpus=8 * gpus,
            log=str(out / "slurm-%j.log").replace("\n", " "),
            script=shlex.quote(str(self.place)).replace("\n", " "),
            out=str(out).replace("\n", " "),
            here=shlex.quote(str(here)),
            exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exported.items()),
            task=shlex.quote(task),
        )
