"""The record of `audit.json`: numbers, results of checks, and examples by place; never the text of a row."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel

from preference.export.summary import EffectiveSize
from reasonrag.curation.audit.catalogue import CHECKS, CheckName, CheckSeverity
from reasonrag.curation.audit.cutoffs import Cutoff
from reasonrag.errors import InputError, ReasonragError
from reasonrag.files import read_record
from reasonrag.rendering import counted

AUDIT, AUDIT_PAGE = "audit.json", "audit.html"
AUDIT_SCHEMA: Final = "reasonrag.audit/1"
EXAMPLES = 5
"""Examples kept per check."""


class RowExample(BaseModel):
    """A row: its `pair_id`, null if it has none of ours, and its place, counted from 1."""

    pair_id: str | None
    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.pair_id} ({self.place})" if self.pair_id else self.place

    @property
    def place(self) -> str:
        return f"{self.file}, row {self.row:,}"


class CheckResult(BaseModel):
    """The result of a check."""

    name: CheckName
    severity: CheckSeverity
    finds: str
    advice: str
    checked: int
    """Rows the check applies to; with 0 it says nothing."""
    count: int
    """Rows with a finding."""
    share: float | None
    """Share of the checked rows."""
    details: dict[str, int] = {}
    """The same rows by what exactly was found; a row can count under several."""
    examples: list[RowExample] = []
    allowed: bool = False
    """An error that `--allow` lets pass."""

    @property
    def stands(self) -> bool:
        """Whether it has findings that are not allowed."""
        return self.count > 0 and not self.allowed

    @property
    def verdict(self) -> str:
        """`error`, `allowed`, `warning`, `passed` or `not checked`."""
        if not self.checked and not self.count:
            return "not checked"
        if not self.count:
            return "passed"
        return "allowed" if self.allowed else self.severity


class IntervalEstimate(BaseModel):
    """A number and its interval at `LABEL_LEVEL`, clustered by question."""

    value: float
    low: float
    high: float


class Quantiles(BaseModel):
    """Quantiles of `of` values; null without values."""

    of: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Histogram(BaseModel):
    """Counts per bin; a bin includes its lower edge, the last one its upper edge too."""

    edges: list[float]
    counts: list[int]


class Lengths(BaseModel):
    """Token counts in the trainer's template."""

    prompt: Quantiles
    chosen: Quantiles
    rejected: Quantiles
    total: Quantiles
    """Prompt and longer reply: what a row needs."""
    histograms: dict[Literal["total", "chosen", "rejected"], Histogram]
    """`chosen` and `rejected` have the same edges."""


class LengthGap(BaseModel):
    """Chosen minus rejected, in tokens; null without rows."""

    shorter: float | None = None
    """Share of the rows whose chosen side is the shorter one."""
    longer: float | None = None
    shorter_of_unequal: IntervalEstimate | None = None
    mean: float | None = None


class TokenCounterName(BaseModel):
    name: str
    exact: bool


class AuditReport(BaseModel):
    """The content of `audit.json`."""

    schema_version: Literal["reasonrag.audit/1"] = AUDIT_SCHEMA
    data: str
    """Name of the audited folder or file."""
    files: dict[str, int]
    """Rows by file."""
    rows: int
    """Rows that can be trained on; the numbers below are about these."""
    parts: dict[str, int]
    """Rows for training and for validation."""
    token_counter: TokenCounterName
    lengths: Lengths
    cutoffs: list[Cutoff]
    advised_cutoff: int | None
    """The smallest multiple of 64 at which nothing is cut; null without rows."""
    length_gap: LengthGap
    worth: EffectiveSize
    checks: list[CheckResult]
    allowed: list[CheckName]
    """Errors named by --allow, whether found or not."""
    versions: dict[str, str]

    @property
    def errors(self) -> list[CheckResult]:
        """What keeps the data from being written or published."""
        return [each for each in self.checks if each.severity == "error" and each.stands]

    @property
    def warnings(self) -> list[CheckResult]:
        return [each for each in self.checks if each.severity == "warning" and each.stands]

    def check(self, name: CheckName) -> CheckResult:
        return next(each for each in self.checks if each.name == name)


class AuditFailed(ReasonragError):
    """Rows have errors that are not allowed."""

    cause = "audit"

    def __init__(self, report: AuditReport) -> None:
        self.report = report
        found = [
            f"{each.name} in {counted(each.count, 'row')}{_why(each)}, "
            f"for example {' and '.join(map(str, each.examples[:2]))}: {CHECKS[each.name].finds} "
            f"({CHECKS[each.name].advice})"
            for each in report.errors
        ]
        allow = " ".join(f"--allow {each.name}" for each in report.errors)
        super().__init__(
            f"the audit found errors in the rows, so no file was replaced: {'; '.join(found)}. To write the files "
            f"anyway, add: {allow}"
        )


def _why(check: CheckResult) -> str:
    return f" ({', '.join(name for name in list(check.details)[:3])})" if check.details else ""


def read_audit(directory: Path) -> AuditReport:
    """The audit report of a data set. Raises InputError if there is none that can be read."""
    again = f"Make it with: reasonrag audit {directory}"
    found = read_record(directory / AUDIT, AuditReport, again)
    if found is None:
        raise InputError(f"there is no {directory / AUDIT}. {again}")
    return found


def by_severity(report: AuditReport) -> list[CheckResult]:
    """The checks by verdict: errors, allowed, warnings, passed, not checked."""
    order = ("error", "allowed", "warning", "passed", "not checked")
    return sorted(report.checks, key=lambda each: order.index(each.verdict))
