"""What an audit found, as it stands in `audit.json`: numbers, names of checks, and where to look; no text of a row."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel

from preference.export.summary import EffectiveSize
from reasonrag.curation.audit.catalogue import CHECKS, CheckName, CheckSeverity
from reasonrag.curation.audit.cutoffs import Cutoff
from reasonrag.errors import InputError, ReasonragError
from reasonrag.rendering import counted

AUDIT, AUDIT_PAGE = "audit.json", "audit.html"
AUDIT_SCHEMA: Final = "reasonrag.audit/1"
EXAMPLES = 5
"""Rows that a check names."""


class RowExample(BaseModel):
    """A row: its `pair_id`, null where it has none of ours, and where it stands, counted from 1."""

    pair_id: str | None
    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.pair_id} ({self.place})" if self.pair_id else self.place

    @property
    def place(self) -> str:
        return f"{self.file}, row {self.row:,}"


class CheckResult(BaseModel):
    """What came of a check."""

    name: CheckName
    severity: CheckSeverity
    finds: str
    advice: str
    checked: int
    """Rows that could undergo it; of none it says nothing."""
    count: int
    """Rows that it found."""
    share: float | None
    """Of the rows that were checked."""
    details: dict[str, int] = {}
    """The same rows by what exactly was found; a row can be under several."""
    examples: list[RowExample] = []
    allowed: bool = False
    """An error that somebody let pass by its name."""

    @property
    def stands(self) -> bool:
        """Whether it found something that nobody let pass."""
        return self.count > 0 and not self.allowed

    @property
    def verdict(self) -> str:
        """In words: `error`, `allowed`, `warning`, `info`, `passed` or `not checked`."""
        if not self.checked and not self.count:
            return "not checked"
        if not self.count:
            return "passed"
        return "allowed" if self.allowed else self.severity


class IntervalEstimate(BaseModel):
    """A number and its interval at 90 %, rows of a question taken together."""

    value: float
    low: float
    high: float


class Quantiles(BaseModel):
    """Of tokens, or of whatever the field says. All null of none."""

    of: int
    mean: float | None = None
    min: float | None = None
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Histogram(BaseModel):
    """Rows from one edge up to, but not including, the next; the last bin has its upper edge as well."""

    edges: list[float]
    counts: list[int]


class Lengths(BaseModel):
    """Tokens in the trainer's template."""

    prompt: Quantiles
    chosen: Quantiles
    rejected: Quantiles
    total: Quantiles
    """Prompt and longer reply: what a row needs."""
    histograms: dict[Literal["total", "chosen", "rejected"], Histogram]
    """`chosen` and `rejected` have the same edges."""


class LengthGap(BaseModel):
    """Chosen minus rejected, in tokens. Null where there are no rows."""

    rows: int
    shorter: float | None = None
    """Share of the rows whose chosen side is the shorter one."""
    longer: float | None = None
    equal: float | None = None
    shorter_of_unequal: IntervalEstimate | None = None
    mean: IntervalEstimate | None = None
    median: IntervalEstimate | None = None


class TokenCounterName(BaseModel):
    name: str
    exact: bool


class AuditReport(BaseModel):
    """The content of `audit.json`."""

    schema_version: Literal["reasonrag.audit/1"] = AUDIT_SCHEMA
    data: str
    """What was audited, by its last name."""
    files: dict[str, int]
    """Rows by file."""
    rows: int
    """Those that can be trained on; numbers below are of these."""
    parts: dict[str, int]
    """Rows for training and for validation."""
    token_counter: TokenCounterName
    lengths: Lengths
    cutoffs: list[Cutoff]
    advised_cutoff: int | None
    """The smallest multiple of 64 at which nothing is cut; null without rows."""
    length_gap: LengthGap
    chosen_first: IntervalEstimate | None
    """Share of the rows whose chosen step was sampled first; null where rows do not say."""
    action_types: dict[str, int]
    """By chosen side."""
    type_combinations: dict[str, int]
    """`chosen > rejected`."""
    layers: dict[str, dict[str, int]]
    """By layer, then by the chosen side's action type."""
    margins: Quantiles
    confidences: Quantiles
    histograms: dict[Literal["margin", "confidence"], Histogram]
    rows_per_question: Quantiles
    rows_per_state: Quantiles
    rows_per_question_counts: dict[str, int]
    """How many questions have so many rows; the largest numbers together."""
    worth: EffectiveSize
    tags: dict[str, int]
    labels: dict[str, int]
    renderers: dict[str, int]
    splits: dict[str, int]
    flipped: int
    checks: list[CheckResult]
    allowed: list[CheckName]
    """Errors that were let pass by name, whether found or not."""
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
    """Rows have errors that nobody let pass."""

    cause = "audit"

    def __init__(self, report: AuditReport) -> None:
        self.report = report
        found = [
            f"{each.name} in {counted(each.count, 'row')}{_why(each)}, "
            f"as in {' and '.join(map(str, each.examples[:2]))}: {CHECKS[each.name].finds} ({CHECKS[each.name].advice})"
            for each in report.errors
        ]
        allow = " ".join(f"--allow {each.name}" for each in report.errors)
        super().__init__(
            f"the audit found errors in the rows, so no file was replaced: {'; '.join(found)}. "
            f"To write them all the same: {allow}"
        )


def _why(check: CheckResult) -> str:
    return f" ({', '.join(name for name in list(check.details)[:3])})" if check.details else ""


def read_audit(directory: Path) -> AuditReport:
    """The report that stands in a data set. Raises InputError where there is none, or one of another version."""
    path = directory / AUDIT
    try:
        return AuditReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"there is no {path}; make it with: reasonrag audit {directory}") from error
    except ValueError as error:
        raise InputError(f"{path} is no report of this version; make it anew: reasonrag audit {directory}") from error


def by_severity(report: AuditReport) -> list[CheckResult]:
    """Errors, then what was allowed, warnings, the rest; in each those that found something first."""
    order = ("error", "allowed", "warning", "info", "passed", "not checked")
    return sorted(report.checks, key=lambda each: order.index(each.verdict))
