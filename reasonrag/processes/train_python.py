"""LLaMA-Factory's own Python environment: its pins conflict with current releases of our other dependencies.

Decides which interpreter that is. Does not know what is run there.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from reasonrag.errors import InputError

PYTHON_VARIABLE = "REASONRAG_TRAIN_PYTHON"
_MADE_BY_MAKE = Path(".venv-train/bin/python")
_PROJECT = Path(__file__).parents[2]
"""Root of the checkout, where `make train-env` builds."""


def find_python() -> Path:
    """The interpreter that has LLaMA-Factory: REASONRAG_TRAIN_PYTHON, else the one built by `make train-env` here or in
    the checkout, else this one. Raises InputError if there is none."""
    if named := os.environ.get(PYTHON_VARIABLE):
        if not Path(named).is_file():
            raise InputError(f"{PYTHON_VARIABLE}: there is no {named}; it must name a Python that has LLaMA-Factory")
        return Path(named).absolute()
    for place in (Path.cwd(), _PROJECT):
        if (place / _MADE_BY_MAKE).is_file():
            return (place / _MADE_BY_MAKE).absolute()
    if find_spec("llamafactory"):
        return Path(sys.executable)
    raise InputError(
        "LLaMA-Factory was not found: make train-env builds .venv-train in the checkout, or set "
        f"{PYTHON_VARIABLE} to a Python that has it (pip install 'reasonrag[train]' there)"
    )
