"""The record of `audit.json`: numbers, results of checks, and examples by place; never the text of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from preference.export.formats import FORMATS, SPLITS
from reasonrag.curation.audit.catalogue import CheckName, CheckSeverity
from reasonrag.curation.audit.cutoffs import TRAINERS_DEFAULT, Cutoff
from reasonrag.data.settings import HUB_SPLITS
from reasonrag.errors import InputError, ReasonragError
from reasonrag.files import read_record
from reasonrag.rendering import Line, Part, Shown, Table, Verdict, counted, html_of, next_command, percent

AUDIT, AUDIT_PAGE = "audit.json", "audit.html"
EXAMPLES = 5
"""Examples kept per check."""
_VERDICTS = ("error", "allowed", "warning", "passed", "not checked")
_THEN = {"error": ". Do not train on these rows or publish them", "warning": ". Review before training", "passed": ""}


class RowExample(BaseModel):
    """The place of a row, counted from 1."""

    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row:,}"


class CheckResult(BaseModel):
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
    def verdict(self) -> str:
        """`error`, `allowed`, `warning`, `passed` or `not checked`."""
        if not self.count:
            return "passed" if self.checked else "not checked"
        return "allowed" if self.allowed else self.severity


class TokenCounterName(BaseModel):
    name: str
    exact: bool


class AuditReport(BaseModel, Shown):
    """The content of `audit.json`."""

    schema_version: Literal["reasonrag.audit/1"] = "reasonrag.audit/1"
    data: str
    """Name of the audited folder or file."""
    files: dict[str, int]
    """Rows by file."""
    rows: int
    """Rows that can be trained on; the numbers below are about these."""
    parts: dict[str, int]
    """Rows for training and for validation."""
    token_counter: TokenCounterName
    cutoffs: list[Cutoff]
    advised_cutoff: int | None
    """The smallest multiple of 64 at which nothing is cut; null without rows."""
    chosen_shorter: float | None
    """Share of the rows with a shorter chosen side, of those whose sides differ in length; null without such."""
    checks: list[CheckResult]
    versions: dict[str, str]

    @property
    def errors(self) -> list[CheckResult]:
        """What keeps the data from being written or published."""
        return [each for each in self.checks if each.verdict == "error"]

    @property
    def warnings(self) -> list[CheckResult]:
        return [each for each in self.checks if each.verdict == "warning"]

    def shown(self, *, page: bool = False) -> Iterator[Part]:
        """What the audit comes to; the checks, failed ones first; numbers. page: with all checks and links to rows."""
        severity = "error" if self.errors else "warning" if self.warnings else "passed"
        nothing = "no pairs, so nothing was checked: rows of sft are not audited"
        yield Verdict(f"{severity}: {self.tally}{_THEN[severity]}") if self.rows else nothing
        by_severity = sorted(self.checks, key=lambda each: _VERDICTS.index(each.verdict))
        if rows := [_check_row(each, page=page) for each in by_severity if page or each.count]:
            yield Table("checks", rows, ("check", "result", "rows", "finding, and what to do"))
        yield Table("files and lengths", self._number_rows())

    def page(self) -> str:
        """`audit.html`."""
        return html_of(self.shown(page=True), f"Audit of {self.data}", "audit.html.j2", versions=self.versions)

    def _number_rows(self) -> Iterator[tuple[str, object]]:
        yield "files", [f"{name} {count:,}" for name, count in self.files.items()]
        yield "rows", f"{self.rows:,} ({self.parts['train']:,} train, {self.parts['validation']:,} validation)"
        yield "tokens counted by", self.token_counter.name
        for each in self.cutoffs:
            if each.truncated or each.cutoff_len == TRAINERS_DEFAULT:
                rows_cut, in_prompt = (percent(cut / self.rows, 1) for cut in (each.truncated, each.prompt_cut))
                yield f"cutoff_len {each.cutoff_len:,}", f"cuts {rows_cut} of the rows, {in_prompt} in the prompt"
        if self.advised_cutoff:
            exact = self.token_counter.exact
            about = "" if exact else ", by estimated lengths (exact: pip install 'reasonrag[tokens]')"
            yield "cutoff_len to use", f"{self.advised_cutoff:,}: cuts nothing{about}"
        if self.chosen_shorter is not None:
            yield "chosen side shorter where they differ", f"{self.chosen_shorter:.2f}"

    @property
    def tally(self) -> str:
        """`1 error, 2 warnings, 28 checks passed`."""
        of = Counter(each.verdict for each in self.checks)
        parts = [counted(of["error"], "error"), counted(of["warning"], "warning")]
        parts += [f"{of['allowed']} allowed"] * (of["allowed"] > 0) + [f"{counted(of['passed'], 'check')} passed"]
        return ", ".join(parts + [f"{of['not checked']} not checked"] * (of["not checked"] > 0))


class AuditFailed(ReasonragError):
    """Rows have errors that are not allowed."""

    cause = "audit"

    def __init__(self, report: AuditReport) -> None:
        self.report = report
        found = [
            f"{each.name} in {counted(each.count, 'row')}{_why(each)}, "
            f"for example {' and '.join(map(str, each.examples[:2]))}: {each.finds} ({each.advice})"
            for each in report.errors
        ]
        allow = " ".join(f"--allow {each.name}" for each in report.errors)
        super().__init__(
            f"the audit found errors in the rows, so no file was replaced: {'; '.join(found)}. To write the files "
            f"anyway, add: {allow}"
        )


def _why(check: CheckResult) -> str:
    return f" ({', '.join(list(check.details)[:3])})" if check.details else ""


def read_audit(directory: Path) -> AuditReport:
    """The audit report of a data set. Raises InputError if there is none that can be read."""
    again = f"Make it with: reasonrag audit {directory}"
    if (found := read_record(directory / AUDIT, AuditReport, again)) is None:
        raise InputError(f"there is no {directory / AUDIT}. {again}")
    return found


def _check_row(check: CheckResult, *, page: bool) -> Sequence[object]:
    many = (check.count, percent(check.share or 0, 1)) if check.count else f"0 of {check.checked:,}"
    examples = f"examples: {'; '.join(map(str, check.examples[: EXAMPLES if page else 2]))}" if check.examples else ""
    advice = f"→ {check.advice}" if check.count and not check.allowed else ""
    shown = rows_in_view(check.examples) if page else ""
    link = Line(f"view.html#/pairs?status=all&rows={shown}") if shown else ""
    found = (check.finds, dict(list(check.details.items())[:4]), advice, examples, link)
    return check.name, check.verdict, many, tuple(each for each in found if each)


def rows_in_view(examples: Iterable[RowExample]) -> str:
    """As the page of `reasonrag view` names rows in its address: `train:3,validation:1`; empty for files of others."""
    parts = {FORMATS[name].file_name(split): split for name in ("proguide", "turns") for split in SPLITS}
    return ",".join(f"{parts[each.file]}:{each.row}" for each in examples if each.file in parts)


def verdict_parts(out: Path, splits: Sequence[str], trains: Sequence[object] | None = None) -> Iterator[Part]:
    """For a data set that was just written: one line, and the next commands. splits: of its questions; only a data
    set of public questions is suggested for publishing. trains: a command for what is not its pairs; empty: none."""
    report = read_audit(out)
    if report.rows:
        named = ", ".join(each.name for each in report.warnings)
        yield Line(f"audit: {report.tally}{f' ({named})' if named else ''}; see {out / AUDIT_PAGE}")
        yield next_command("view", out)
        yield next_command("review", out, "--out", f"{out}-review.csv")
    if trains is None and report.rows:
        trains = "train", "qwen2.5-7b-dpo-lora"
    if trains:
        yield next_command(*trains, "--data", out)
        if splits and all(each.rpartition("/")[0] in HUB_SPLITS for each in splits):
            yield next_command("publish", out, "--repo", "ORG/NAME")
