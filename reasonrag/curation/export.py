"""Gathered candidates become the files of a data set: decontaminated, audited, written by the rules.

Decides in which order this happens, and which prompts a data set keeps. Does not know where candidates come from;
filters and formats are decided in `preference`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from preference import PairingRules, PairSummary
from preference.candidate_records import QuestionRecord, StateRecord, read_lines
from preference.export.export_pairs import export_pairs
from preference.export.formats import CONVERSATIONS
from preference.export.summary import CANDIDATES, QUESTIONS, ExportOptions, held_out_keys, summary_of
from preference.labelled_runs import rewrite_lines
from reasonrag.agent.imported_prompts import ImportedPrompts, imported_prompts, with_prompts
from reasonrag.agent.prompting import PROMPTS, load_prompts, prompts_beside, save_prompts
from reasonrag.agent.protocols.conversations import Conversations
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.curation.audit.audit import DatasetAudit, parse_allowed, write_audit
from reasonrag.curation.audit.report import AUDIT_PAGE, AuditFailed
from reasonrag.curation.decontamination import Decontamination, decontaminate
from reasonrag.curation.publish_blockers import ALLOWED_AS_PUBLISHED
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings
from reasonrag.curation.token_counters import token_counter
from reasonrag.data.eval_splits import EvalSplits, add_named, add_referenced
from reasonrag.run_config import versions


class DataSetExport:
    """Turns candidates into the data set `out`. Raises InputError for a bad setting or file, before any label."""

    def __init__(self, rules: PairingRules, checks: CheckSettings, gate: DecontaminationSettings, out: Path) -> None:
        self._rules, self._gate, self._out = rules, gate, out
        self.tokens, self._warnings = token_counter()
        allowed = [*checks.allow, *(ALLOWED_AS_PUBLISHED if rules.as_published else ())]
        name = out.resolve().name
        self._audit = DatasetAudit(self.tokens, allow=parse_allowed(allowed), name=name, trusted=True)
        self._splits = EvalSplits()
        add_named(self._splits, gate.eval)

    def decontaminate(self, staged: Path, sources: Sequence[Path]) -> Decontamination:
        """Find the questions to leave out because they are in an evaluation split. Raises InputError."""
        add_referenced(self._splits, sources, allowed=self._gate.allow_eval)
        return decontaminate(staged, self._splits, allowed=self._gate.allow_eval)

    def write(
        self, staged: Path, sources: Sequence[Path], gated: Decontamination, options: ExportOptions, made: PairSummary
    ) -> PairSummary:
        """Write all files of the data set but its candidates. made: counts of judging, critics or warm_up, and warnings
        of that. Raises AuditFailed, OSError."""
        left_out: dict[str, Any] = {key: "held_out" for each in sources for key in held_out_keys(each)}
        left_out |= dict.fromkeys(gated.contaminated, "contaminated")
        facts = {
            "out": str(self._out),
            "sources": list(dict.fromkeys(self._named(sources))),
            "token_counter": self.tokens.name,
            "contamination": gated.summary.model_dump(),
            "warnings": [*self._warnings, *made.warnings, *gated.warnings],
            "versions": versions(),
        }
        summary = export_pairs(
            *(staged, staged, self._rules, options),
            facts=made.model_copy(update=facts),
            left_out=left_out,
            inspect=self._audit.add,
            conversations=Conversations(options.formats) if CONVERSATIONS & {*options.formats} else None,
        )
        gated.write(staged)
        if (report := self._audit.report()).errors:
            raise AuditFailed(report)
        write_audit(report, staged / AUDIT_PAGE)
        return summary

    def _named(self, sources: Sequence[Path]) -> Iterator[str]:
        """The sources, those that the data set had before instead of itself; some of the others twice, after a kill."""
        for each in sources:
            itself = each.resolve() == self._out.resolve()
            yield from (itself and summary_of(each).sources) or [str(each)]


def keep_prompts(data_sets: Sequence[Path], staged: Path) -> list[str]:
    """Take the prompts of imported rows along, unless there are several, and those of imported trees out of the states;
    returns what these do not cover. data_sets: those among the sources."""
    folders = filter(None, map(prompts_beside, data_sets))
    found = {renderer_hash(prompts): prompts for prompts in map(load_prompts, folders)}
    if len(found) == 1:
        [prompts] = found.values()
        save_prompts(prompts, staged / PROMPTS)
    elif not any(each.origin.renderer for each in read_lines(staged / QUESTIONS, QuestionRecord)):
        taken = take_prompts(staged)
        return taken.warnings if taken and (staged / PROMPTS).exists() else []
    return []


def take_prompts(staged: Path) -> ImportedPrompts | None:
    """Record the renderer of imported states, and keep its prompts unless they are ours. None where it gives no prompt
    of them."""
    ours = load_prompts()
    imported = imported_prompts(partial(read_lines, staged / CANDIDATES, StateRecord), ours)
    if imported is not None:
        rewrite_lines(staged / CANDIDATES, StateRecord, partial(with_prompts, imported=imported))
        rewrite_lines(staged / QUESTIONS, QuestionRecord, partial(with_prompts, imported=imported))
        if renderer_hash(imported.prompts) != renderer_hash(ours):
            save_prompts(imported.prompts, staged / PROMPTS)
    return imported
