"""A batch script for Slurm that runs the same `reasonrag train` on every machine of a job.

Decides what the script requests and how each machine learns its rank and the first machine's address. A requeued job
resumes from its last checkpoint, because the command itself does.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from preference.export.private_files import write_file
from reasonrag.files import writing
from reasonrag.processes.children import PYTHON_VARIABLE
from reasonrag.redaction import redact, secrets
from reasonrag.training.llamafactory.launcher import PORT, Launch
from reasonrag.training.prepare import Startable
from reasonrag.training.stages.training import TrainingResult

DEFAULT_GPUS_PER_NODE: Final = 8
"""Assumed for a cluster node when --gpus-per-node is not given and this machine has no GPU."""


@dataclass(frozen=True)
class SlurmScript:
    """A batch script to write. words: flags of `train`, which it repeats, without those about machines."""

    place: Path
    words: Sequence[str]


def write_script(prepared: Startable, launch: Launch, script: SlurmScript) -> TrainingResult:
    """Write the batch script. Raises InputError where it cannot be written."""
    record, out = prepared.record, Path(prepared.record.resolved["output_dir"])
    gpus = launch.gpus_per_node or len(record.gpus)
    if not gpus:
        gpus = DEFAULT_GPUS_PER_NODE
        record.notes.append(f"--gpus-per-node: {gpus} assumed, because this machine has no GPU")
    exported = {PYTHON_VARIABLE: record.python}
    exported |= {name: os.environ[name] for name in ("HF_HOME", "HF_HUB_OFFLINE", "PYTHONPATH") if os.environ.get(name)}
    exported = {name: value for name, value in exported.items() if redact(value) == value and value not in secrets()}
    port = launch.master[1] if launch.master else PORT
    task = (
        f"exec {shlex.join([sys.executable, '-m', 'reasonrag', 'train', *script.words])} --nodes {launch.nodes} "
        f'--node-rank "$SLURM_NODEID" --gpus-per-node {gpus} --master "$MASTER_ADDR:{port}"'
    )
    template = resources.files("reasonrag").joinpath("templates/slurm.sh").read_text("utf-8")
    text = template.format(
        name=re.sub(r"[^\w.-]", "-", f"train-{out.name}"),
        nodes=launch.nodes,
        gpus=gpus,
        cpus=8 * gpus,
        log=str(out / "slurm-%j.log").replace("\n", " "),
        script=shlex.quote(str(script.place)).replace("\n", " "),
        out=str(out).replace("\n", " "),
        here=shlex.quote(str(Path.cwd())),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exported.items()),
        task=shlex.quote(task),
    )
    with writing(script.place):
        script.place.parent.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)  # Slurm writes its log there and makes no folder
        write_file(script.place, text.encode(), shared=True)
    return TrainingResult(state="script written", out=str(out), record=record, script=str(script.place))
