"""Processes that we start: which secrets of the environment they are given, and the Python that trains.

LLaMA-Factory has an environment of its own, since its pins conflict with current releases of our other dependencies.
`redaction` knows what a secret is; what is run there is not known here.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.redaction import is_secret, password_in

HUB_TOKENS = ("HF_TOKEN", "HUGGING")
"""How the names of variables begin that open gated models on the Hub."""
PYTHON_VARIABLE = "REASONRAG_TRAIN_PYTHON"
_MADE_BY_MAKE = Path(".venv-train/bin/python")
_PROJECT = Path(__file__).parents[2]
"""Root of the checkout, where `make train-env` builds."""


def hub_tokens(*models: str | None) -> tuple[str, ...]:
    """How the names of secrets begin that loading these models takes: none where each is a folder here, or None."""
    return HUB_TOKENS if any(each and not Path(each).expanduser().is_dir() for each in models) else ()


def child_environment(*kept: str) -> dict[str, str]:
    """The environment for a child process: without secrets, but for proxies and names that begin with one of `kept`."""
    secret = {name for name, value in os.environ.items() if is_secret(name, value) or password_in(value)}
    needed = {name for name in secret if name.startswith(kept) or name.lower().endswith("_proxy")}
    return {name: value for name, value in os.environ.items() if name not in secret - needed}


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
