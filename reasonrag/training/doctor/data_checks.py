"""Checks of a data set and of an index: whether they are unchanged and belong together.

Data go through the checks of `train` (`preflight_checks`), so both commands agree. Of an index only the manifest is
read; `reasonrag index check` reads it whole.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from reasonrag.agent.prompting import Prompts
from reasonrag.curation.audit.report import AUDIT, read_audit
from reasonrag.errors import InputError
from reasonrag.rendering import counted
from reasonrag.retrieval.dense.manifest import BM25Manifest, DenseManifest, IndexManifest, read_manifest
from reasonrag.training import preflight_checks
from reasonrag.training.doctor.findings import CheckupArea, CheckupFinding, CheckupSeverity, finding
from reasonrag.training.llamafactory.config_files import ConfigFile
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import TrainingData, entry_for, read_questions, read_training_data
from reasonrag.training.preflight_checks import BaseFacts, PreflightFindings
from reasonrag.training.prompt_parity import DataConditions
from reasonrag.training.provenance import Provenance

POOLING: Final[Mapping[str, str]] = {
    "bge": "cls",
    "e5": "mean",
    "minilm": "mean",
    "gte-base": "cls",
    "contriever": "mean",
}
"""Pooling that encoders were trained with, by a part of their name; another pooling silently finds worse passages."""


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
    conditions: DataConditions | None = None

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
        facts.conditions = preflight_checks.check_prompts(data, prompts, base or unknown, found, allow_other=False)
        if facts.conditions.renderer:
            facts.add("renderer", "ok", f"rendered by {facts.conditions.renderer}, as the model would be prompted")
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


# -- index ---------------------------------------------------------------------------------------------------------


def check_index(directory: Path, retrievers: list[str], *, of: str) -> list[CheckupFinding]:
    """Check an index by its manifest. retrievers: those recorded by the data or by the model's training; of: by
    which."""

    of_index = partial(finding, "index")
    try:
        manifest = read_manifest(directory)
    except InputError as error:
        return [of_index("manifest", "error", str(error))]
    found = []
    corpus = Path(manifest.corpus)
    check = f"reasonrag index check {shlex.quote(str(directory))}"
    if not corpus.is_file() or corpus.stat().st_size != manifest.corpus_bytes:
        gone = "has changed in size since it was indexed" if corpus.is_file() else "is missing"
        found.append(
            of_index("corpus", "error", f"{directory}: its corpus {corpus} {gone}", f"build it again; {check}")
        )
    elif not manifest.matches(corpus):
        found.append(of_index("corpus", "warning", f"{directory}: its corpus {corpus} was modified since", check))
    if isinstance(manifest, DenseManifest):
        found += [of_index(*each) for each in _of_an_encoder(directory, manifest)]
    known = [each for each in retrievers if each]
    if known and not any(_named(manifest) in each for each in known):
        says = f"{directory} ({_named(manifest)}) is not what {of} searched: {known[0]}"
        found.append(
            of_index(
                "retriever", "warning", says, "evaluate with the index the data were made with, or --allow retriever"
            )
        )
    elif known:
        found.append(of_index("retriever", "ok", f"{directory} is the index that {of} searched"))
    if not any(each.severity == "error" for each in found):
        kind = manifest.kind if isinstance(manifest, BM25Manifest) else f"dense, {manifest.encoder.model}"
        says = f"{directory}: {kind}, {counted(manifest.passages, 'passage')}; hashes and recall: {check}"
        found.append(of_index("manifest", "ok", says))
    return found


def _named(manifest: IndexManifest) -> str:
    """The prefix of the retriever identity of this index."""
    if isinstance(manifest, BM25Manifest):
        return f"bm25:{manifest.corpus_sha256[:16]}:k1={manifest.k1}:b={manifest.b}:"
    return f"dense:{manifest.corpus_sha256[:16]}:{manifest.vectors_sha256[:16]}:"


def _of_an_encoder(directory: Path, manifest: DenseManifest) -> list[tuple[str, CheckupSeverity, str, str]]:
    """Whether queries can be encoded here, with the pooling the encoder was trained for."""
    spec = manifest.encoder
    found: list[tuple[str, CheckupSeverity, str, str]] = []
    if spec.pooling != "words" and find_spec("sentence_transformers") is None:
        says = f"{directory} needs {spec.model} to encode queries, and the embed extra is not installed"
        found.append(("encoder", "error", says, "pip install 'reasonrag[embed]'"))
    folder = Path(spec.model)
    if folder.is_absolute() and not folder.is_dir():
        found.append(
            ("encoder", "error", f"{directory}: its encoder {folder} is missing", "put it back; queries need it")
        )
    known = next((pooling for name, pooling in POOLING.items() if name in spec.model.lower()), None)
    if known and spec.pooling != known:
        says = f"{directory} uses {spec.model} with {spec.pooling} pooling, but it was trained for {known}"
        found.append(("pooling", "warning", says, f"build it again with --pooling {known}"))
    return found


def known_retrievers(conditions: DataConditions | None, provenance: Provenance | None) -> tuple[list[str], str]:
    """The retrievers that passages came from, and the source of that information."""
    if conditions and any(conditions.retriever):
        return [each for each in conditions.retriever if each], "the data"
    if provenance and any(provenance.asked.retriever):
        return [each for each in provenance.asked.retriever if each], "the model's training"
    return [], ""
