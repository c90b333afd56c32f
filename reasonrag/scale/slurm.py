"""A script for Slurm: an array job whose tasks are the ranks of a run, and a job that merges them.

Decides what is submitted and how a task learns its rank. A task that is requeued, or a script that is submitted again,
goes on where the ranks were, because the command itself does.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from preference.export.files import open_private
from reasonrag.errors import InputError
from reasonrag.exploration.settings import OF_RANKS
from reasonrag.files import writing
from reasonrag.rendering import one_line

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --output={log_of_ranks}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:INT@120
# Yours to fill in: #SBATCH --time=24:00:00 --mem=4G --partition=.. --account=..
#
# Written by reasonrag generate. Submit it: bash {script}
# It submits {ranks} ranks, and a job that merges them when all have ended. Every machine must see this folder and the
# run at the same place. Submitted again, it goes on; what was paid for is not paid again. Two minutes before its time
# ends a rank is told, and finishes its requests.

set -euo pipefail
ranks={ranks}
script={script}
cd {here}

case "${{1:-submit}}" in
submit)
    array=$(sbatch --parsable --array="0-$((ranks - 1))" "$script" rank)
    merge=$(sbatch --parsable --dependency="afterany:${{array%%;*}}" --output={log_of_merge} "$script" merge)
    echo "submitted $ranks ranks as job ${{array%%;*}}, and their merge as job ${{merge%%;*}}"
    ;;
rank)
    exec {generate} --shard "$SLURM_ARRAY_TASK_ID/$ranks"
    ;;
merge)
    exec {merge}
    ;;
*)
    echo "usage: bash $script [submit|rank|merge]" >&2
    exit 2
    ;;
esac
"""


def write_slurm_script(path: Path, flags: Mapping[str, Any], *, ranks: int, run: Path) -> None:
    """Write the script. flags: of the call, which every rank repeats. run: of the whole. Raises InputError."""
    python = [sys.executable, "-m", "reasonrag"]
    own = set(OF_RANKS) - {"limiter"}  # all ranks go to the same one
    words = flag_words({name: value for name, value in flags.items() if name not in own})
    if flags.get("run") is None:
        words += ["--run", str(run)]
    text = _SCRIPT.format(
        name="".join(each if each.isalnum() or each in "-_." else "-" for each in f"generate-{run.name}"),
        log_of_ranks=shlex.quote(f"{one_line(path.absolute())}-%A_%a.log"),
        log_of_merge=shlex.quote(f"{one_line(path.absolute())}-merge-%j.log"),
        script=shlex.quote(str(path.absolute())),
        ranks=ranks,
        here=shlex.quote(str(Path.cwd())),
        generate=shlex.join([*python, "generate", *words]),
        merge=shlex.join([*python, "merge", str(run)]),
    )
    with writing(path), open_private(path, "wb") as file:
        file.write(text.encode())


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """The flags of a call as a command line has them; those that are None were not given. Raises InputError for objects
    that only this process has."""
    words = list[str]()
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else [] if name == "yes" else [f"--no-{flag[2:]}"]
            continue
        listed: Sequence[Any] = value if isinstance(value, list | tuple) else [] if value is None else [value]
        for each in listed:
            if not isinstance(each, str | int | float | Path | dict):
                raise InputError(f"{name}: an object of this process cannot be given to a rank; name it by a setting")
            words += [flag, orjson.dumps(each).decode() if isinstance(each, dict) else str(each)]
    return words
