"""The record of one finding of a checkup, with advice."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

CheckupSeverity = Literal["error", "warning", "note", "ok"]
"""error: the training would fail, or not be what was asked for. warning: it may. note: worth knowing. ok: checked."""
CheckupArea = Literal["packages", "GPUs", "memory", "configuration", "data", "disk", "environment"]


class CheckupFinding(BaseModel):
    """A finding. name: stable, for programs. advice: what to do; empty if nothing."""

    model_config = ConfigDict(frozen=True)

    about: CheckupArea
    name: str
    severity: CheckupSeverity
    says: str
    advice: str = ""


def finding(about: CheckupArea, name: str, severity: CheckupSeverity, says: str, advice: str = "") -> CheckupFinding:
    """A finding by its parts, in the order in which it is read."""
    return CheckupFinding(about=about, name=name, severity=severity, says=says, advice=advice)
