"""One finding of a checkup, with advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CheckupSeverity = Literal["error", "warning", "note", "ok"]
"""error: the training would fail, or not be what was asked for. warning: it may. note: worth knowing. ok: checked."""
CheckupArea = Literal["packages", "GPUs", "memory", "configuration", "data", "disk", "environment"]


@dataclass(frozen=True)
class Finding:
    """name: stable, for programs. advice: what to do; empty if nothing."""

    about: CheckupArea
    name: str
    severity: CheckupSeverity
    says: str
    advice: str = ""
