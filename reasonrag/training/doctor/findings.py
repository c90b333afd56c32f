"""What a checkup says: one finding each, and what to do about it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

CheckupSeverity = Literal["error", "warning", "note", "ok"]
"""error: a training would fail or be another one. warning: it may. note: to be known. ok: looked at, and right."""
CheckupArea = Literal["packages", "GPUs", "memory", "configuration", "data", "index", "disk", "environment"]


class CheckupFinding(BaseModel):
    """name: for programs, stable. advice: what to do; empty where there is nothing to be done."""

    model_config = ConfigDict(frozen=True)

    about: CheckupArea
    name: str
    severity: CheckupSeverity
    says: str
    advice: str = ""


def finding(about: CheckupArea, name: str, severity: CheckupSeverity, says: str, advice: str = "") -> CheckupFinding:
    """A finding by its parts, in the order in which it is read."""
    return CheckupFinding(about=about, name=name, severity=severity, says=says, advice=advice)
