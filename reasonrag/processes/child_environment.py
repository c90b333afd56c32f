"""Which secrets of the environment a process that we start is given. `redaction` knows what a secret is."""

from __future__ import annotations

import os
from pathlib import Path

from reasonrag.redaction import is_secret, password_in

HUB_TOKENS = ("HF_TOKEN", "HUGGING")
"""How the names of variables begin that open gated models on the Hub."""


def hub_tokens(*models: str | None) -> tuple[str, ...]:
    """How the names of secrets begin that loading these models takes: none where each is a folder here, or None."""
    return HUB_TOKENS if any(each and not Path(each).expanduser().is_dir() for each in models) else ()


def child_environment(*kept: str) -> dict[str, str]:
    """The environment for a child process: without secrets, but for proxies and for names that begin with one of
    `kept`."""
    secret = {name for name, value in os.environ.items() if is_secret(name, value) or password_in(value)}
    needed = {name for name in secret if name.startswith(kept) or name.lower().endswith("_proxy")}
    return {name: value for name, value in os.environ.items() if name not in secret - needed}
