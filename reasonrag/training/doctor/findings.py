"""Findings of a checkup, with advice, and how what `train` would refuse becomes some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from reasonrag.errors import InputError
from reasonrag.training.preflight_checks import PreflightFindings

CheckupSeverity = Literal["error", "warning", "note", "ok"]
"""error: the training would fail, or not be what was asked for. warning: it may. note: worth knowing. ok: checked."""
CheckupArea = Literal["packages", "GPUs", "memory", "configuration", "data", "disk"]


@dataclass(frozen=True)
class Finding:
    """name: stable, for programs. advice: what to do; empty if nothing."""

    about: CheckupArea
    name: str
    severity: CheckupSeverity
    says: str
    advice: str = ""


@contextmanager
def collect_findings(findings: list[Finding], about: CheckupArea) -> Iterator[PreflightFindings]:
    """Turn the notes, blockers and refusals of the preflight checks into findings."""
    found = PreflightFindings()
    try:
        yield found
    except InputError as error:
        findings.append(Finding(about, "refused", "error", str(error)))
    findings += [
        Finding(about, each.name, "error", each.what, f"if intended: {each.flag} {each.name}")
        for each in found.objections
    ]
    findings += [Finding(about, "note", "note", each) for each in found.notes]
