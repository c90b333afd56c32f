"""`reasonrag pairs`: the preference pairs of a finished or half-finished run, as a folder that trains.

Finds the rollouts, leaves the rules to `preference`, and never spends anything: run it as often as you like.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preference import MalformedRolloutsError, PairSummary, export_pairs, read_rollouts
from preference.records import TornLineError
from reasonrag.errors import InputError
from reasonrag.runs import ROLLOUTS
from reasonrag.settings import PairsSettings, resolve
from reasonrag.summaries import versions


def pairs(run: str | Path, **flags: Any) -> PairSummary:
    """Write the pairs of `run`; the keyword arguments are the command's flags (`min_margin` for `--min-margin`).

    run: a run directory or a rollouts file. Raises InputError where it cannot be read or `out` cannot be written.
    """
    settings = resolve(PairsSettings, "pairs", flags)
    path = Path(run)
    if (settings.out / ROLLOUTS).exists():
        raise InputError(f"--out {settings.out} is a run directory, whose summary would be overwritten; choose another")
    rollouts = path / ROLLOUTS if path.is_dir() else path
    if not rollouts.is_file():
        raise InputError(f"there is no {rollouts}; give a run directory. Make one with: reasonrag generate --run {run}")
    try:
        return export_pairs(read_rollouts(rollouts), settings.out, settings.rules, versions=versions())
    except TornLineError as error:
        raise InputError(f"{error}. A run was stopped there; the same generate command again mends the file") from error
    except MalformedRolloutsError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"cannot write {settings.out}: {error.strerror}") from error
