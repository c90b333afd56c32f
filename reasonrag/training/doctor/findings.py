"""What a checkup says: one finding each, and what to do about it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["error", "warning", "note", "ok"]
"""error: a training would fail or be another one. warning: it may. note: to be known. ok: looked at, and right."""
About = Literal["packages", "GPUs", "memory", "configuration", "data", "index", "disk", "environment"]


class Finding(BaseModel):
    """name: for programs, stable. advice: what to do; empty where there is nothing to be done."""

    model_config = ConfigDict(frozen=True)

    about: About
    name: str
    severity: Severity
    says: str
    advice: str = ""
