"""Checks of a data set: by those of `train` (`preflight_checks`), so that both commands agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasonrag.agent.prompting import Prompts
from reasonrag.curation.audit.report import AUDIT, read_audit
from reasonrag.errors import InputError
from reasonrag.training import preflight_checks
from reasonrag.training.doctor.findings import CheckupArea, Finding
from reasonrag.training.llamafactory.config_files import ConfigFile
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import TrainingData, read_questions, read_training_data
from reasonrag.training.preflight_checks import BaseFacts, PreflightFindings


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


@dataclass
class DataCheckup:
    """The checkup of a data set. resolution: the configuration resolved against it."""

    findings: list[Finding] = field(default_factory=list)
    data: TrainingData | None = None
    resolution: ResolvedConfig | None = None


def check_data(
    directory: Path,
    file: ConfigFile,
    changes: Mapping[str, Any],
    prompts: Prompts,
    *,
    base: BaseFacts | None = None,
    out: Path | None = None,
) -> DataCheckup:
    """Check a data set against a configuration that would train on it, the prompts the model would be given, and the
    base model. Without an audit there is nothing to say of one: `train` makes it."""
    facts = DataCheckup()
    with collect_findings(facts.findings, "data") as found:
        facts.data = data = read_training_data(directory)
        facts.resolution = resolution = resolve_config(file, changes, data, out=out)
        preflight_checks.check_rows(resolution.entries, data, read_questions(data, resolution.entry), found)
    if facts.data is None:
        return facts
    if (directory / AUDIT).is_file():
        with collect_findings(facts.findings, "data") as found:
            preflight_checks.check_audit(read_audit(directory), found)
    with collect_findings(facts.findings, "data") as found:
        unknown = BaseFacts("", {}, ())
        preflight_checks.check_prompts(data, prompts, base or unknown, found, allow_other=False)
    if not any(each.severity == "error" for each in facts.findings):
        facts.findings.append(Finding("data", "description", "ok", f"{directory} has {', '.join(data.entries)}"))
    return facts
