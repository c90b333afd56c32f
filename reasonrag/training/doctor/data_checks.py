"""Checks of a data set: by those of `train` (`preflight_checks`), so that both commands agree."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasonrag.agent.prompting import Prompts
from reasonrag.curation.audit.report import AUDIT, read_audit
from reasonrag.errors import InputError
from reasonrag.training import preflight_checks
from reasonrag.training.doctor.findings import CheckupArea, CheckupFinding, CheckupSeverity, finding
from reasonrag.training.llamafactory.config_files import ConfigFile
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import TrainingData, entry_for, read_questions, read_training_data
from reasonrag.training.preflight_checks import BaseFacts, PreflightFindings


@contextmanager
def collect_findings(findings: list[CheckupFinding], about: CheckupArea) -> Iterator[PreflightFindings]:
    """Turn the notes, blockers and refusals of the preflight checks into findings."""
    found = PreflightFindings()
    try:
        yield found
    except InputError as error:
        findings.append(finding(about, "refused", "error", str(error)))
    findings += [
        finding(about, each.name, "error", each.what, f"if intended: {each.flag} {each.name}")
        for each in found.objections
    ]
    findings += [finding(about, "note", "note", each) for each in found.notes]


@dataclass
class DataCheckup:
    """The checkup of a data set. resolution: the configuration resolved against it. advised: the audit's cutoff_len."""

    findings: list[CheckupFinding] = field(default_factory=list)
    data: TrainingData | None = None
    resolution: ResolvedConfig | None = None
    advised: int | None = None

    def add(self, name: str, severity: CheckupSeverity, says: str, advice: str = "") -> None:
        self.findings.append(finding("data", name, severity, says, advice))


def check_data(
    directory: Path,
    file: ConfigFile | None,
    changes: Mapping[str, Any],
    prompts: Prompts,
    *,
    base: BaseFacts | None = None,
    out: Path | None = None,
) -> DataCheckup:
    """Check a data set against a configuration that would train on it, the prompts the model would be given, and the
    base model."""
    facts = DataCheckup()
    with collect_findings(facts.findings, "data") as found:
        facts.data = data = read_training_data(directory)
        if file:
            facts.resolution = resolve_config(file, changes, data, out=out)
        entries = facts.resolution.entries if facts.resolution else [entry_for(data, "dpo", None)]
        preflight_checks.check_rows(entries, data, read_questions(data, entries[0]), found)
    if facts.data is None:
        return facts
    _check_audit(facts, directory)
    with collect_findings(facts.findings, "data") as found:
        unknown = BaseFacts("", {}, ())
        conditions = preflight_checks.check_prompts(data, prompts, base or unknown, found, allow_other=False)
        if conditions.renderer:
            facts.add("renderer", "ok", f"rendered by {conditions.renderer}, as the model would be prompted")
    if not any(each.severity == "error" for each in facts.findings):
        facts.add("description", "ok", f"dataset_info.json describes {', '.join(data.entries)}")
    return facts


def _check_audit(facts: DataCheckup, directory: Path) -> None:
    """Whether there is an audit without errors; `train` makes one if there is none."""
    if not (directory / AUDIT).is_file():
        facts.add("audit", "warning", f"{directory} has no {AUDIT}", f"reasonrag audit {shlex.quote(str(directory))}")
        return
    with collect_findings(facts.findings, "data") as found:
        report = read_audit(directory)
        facts.advised = report.advised_cutoff
        preflight_checks.check_audit(report, found)
        if not report.errors:
            counted = "" if report.token_counter.exact else ", lengths estimated"
            says = f"audited: {report.rows:,} rows without errors, tokens by {report.token_counter.name}{counted}"
            facts.add("audit", "ok", says)
