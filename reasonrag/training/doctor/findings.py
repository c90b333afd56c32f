"""Findings of a checkup, with advice, and how what `train` would refuse becomes some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, ParamSpec, TypeVar

from reasonrag.errors import InputError
from reasonrag.training.preflight_checks import PreflightFindings

P = ParamSpec("P")
R = TypeVar("R")
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


@dataclass
class CollectedFindings(PreflightFindings):
    """What `train` would object to, note, or refuse, and what is right."""

    refusals: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)

    def check(self, what: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a check of `train`; None where it refuses."""
        try:
            return what(*args, **kwargs)
        except InputError as error:
            self.refusals.append(str(error))
            return None

    def shown(self, about: CheckupArea) -> list[Finding]:
        refused = [Finding(about, "refused", "error", each) for each in self.refusals]
        advice = "if intended: {0.flag} {0.name}"
        objected = [Finding(about, each.name, "error", each.what, advice.format(each)) for each in self.objections]
        notes = [Finding(about, "note", "note", each) for each in self.notes]
        return refused + objected + notes + [Finding(about, "description", "ok", each) for each in self.right]
