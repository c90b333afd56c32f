"""Terminal output of `pairs` and `import`: what was read, kept, dropped and repaired, and the next commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from preference import PairSummary
from preference.export.formats import plain_types
from preference.export.summary import CANDIDATES, DROPPED, EffectiveSize, Refinement
from reasonrag.curation.import_published import ImportReport, RepairCount
from reasonrag.curation.labels.critic_scores import CriticScores
from reasonrag.curation.labels.judge_labels import Judging
from reasonrag.rendering import counted
from reasonrag.terminal import (
    counts_text,
    depths_text,
    dollars_or_unknown,
    gold_rows,
    on_one_line,
    print_shown,
    print_table,
    print_titled,
    share_text,
    share_with_interval,
    warn,
)


def show_import(report: ImportReport) -> None:
    """The report, then what was written."""
    print_table(f"imported {report.kind}", _rows(report))
    if report.repairs:
        _show_counts("repaired", report.repairs)
    if report.refusals:
        _show_counts("rejected", report.refusals)
    warn(report.warnings)
    print_shown(f"wrote {report.out}")
    for command in report.next_commands:
        print_shown(f"next: {command}")


def _rows(report: ImportReport) -> list[tuple[str, str]]:
    what = "trees" if report.kind == "trees" else "rows"
    rows = [
        ("read", ", ".join(f"{each.name} ({each.items:,})" for each in report.sources)),
        (what, f"{report.kept:,} of {report.items:,}"),
        ("questions", f"{report.questions:,} ({report.without_golden_answers:,} without gold answers)"),
    ]
    if report.kind == "trees":
        rows.append(("steps", f"{report.steps:,}"))
    else:
        rows.append(("states", f"{report.states:,}"))
        if report.prompts and report.prompts.folders:
            fitting = f"{report.prompts.fitting_states:,} of {report.prompts.states:,} states"
            rows.append(
                ("prompts", f"{', '.join(report.prompts.folders)} (renderer {report.prompts.renderer}; {fitting})")
            )
        rows.append(("written", f"{counted(report.exported, 'pair')}; dropped: {counts_text(report.not_exported)}"))
    return [*rows, ("teacher", report.teacher or "unknown")]


def _show_counts(title: str, counts: dict[str, RepairCount]) -> None:
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, each in counts.items():
        meaning = f"{each.meaning}. First: {on_one_line(each.examples[0])}"
        table.add_row(name.replace("_", " "), f"{each.count:,}", escape(meaning))
    print_titled(title, table)


def show_pairs(summary: PairSummary) -> None:
    """The summary of `pairs`, then what was written."""
    effective = summary.effective
    validation = counted(summary.validation_questions, "question")
    rows = [
        ("questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"),
        ("without a pair", counts_text(summary.without_a_pair)),
        ("pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"),
        ("validation pairs", f"{summary.validation_pairs:,} from {validation}"),
        *([("sides exchanged", f"{summary.flipped:,}")] if summary.flipped else []),
        *([("labels", counts_text(summary.pairs_by_label))] if "outcome" in summary.pairs_by_label else []),
        *_judging_rows(summary.judging),
        *_critic_rows(summary.critics, summary.refinement),
        ("effective sample size", effective_text(effective)),
        ("mean confidence", share_text(summary.mean_confidence)),
        ("by chosen action", plain_types(counts_text(summary.pairs_by_action_type))),
        ("by depth", depths_text(summary.pairs_by_layer)),
        ("same type on both sides", f"{summary.same_type_pairs:,}"),
        ("tagged", counts_text(summary.pairs_by_tag)),
        *gold_rows(summary.gold_agreement),
        ("dropped", counts_text(summary.dropped)),
        ("decontamination", _decontamination(summary.contamination)),
    ]
    print_table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    warn(summary.warnings)
    out = Path(summary.out)
    for name, count in summary.files.items():
        print_shown(f"wrote {out / name} ({counted(count, 'row')})")
    print_shown(f"all candidates: {out / CANDIDATES}; drop reasons: {out / DROPPED}")


def _judging_rows(judging: dict[str, Any]) -> list[tuple[str, str]]:
    """What a judge said; no rows without a judge."""
    if not judging:
        return []
    found = Judging.model_validate(judging)
    said = f"{found.picked:,} with a preference, {found.none:,} without, {found.unreadable:,} unreadable"
    lost = f", {found.given_up:,} failed (the same command retries them)" if found.given_up else ""
    return [
        (f"judged by {found.model}", f"{counted(found.states, 'state')}: {said}{lost}"),
        ("agreement with rewards", share_with_interval(found.agrees_with_values)),
        (
            "cost of judging",
            f"{dollars_or_unknown(found.cost_usd)}, {counted(found.calls, 'completion')}, {found.session_calls:,} new",
        ),
    ]


def _critic_rows(critics: dict[str, Any], refinement: dict[str, Any]) -> list[tuple[str, str]]:
    """What critics scored, and what they left of the best paths; no rows without them."""
    if not critics:
        return []
    found = CriticScores.model_validate(critics)
    lost = f", {found.given_up:,} failed (the same command retries them)" if found.given_up else ""
    rows = [
        (f"scored by {', '.join(found.critics)}", f"{counted(found.scored, 'step')}{lost}"),
        ("asked of them", f"{counted(found.calls, 'score')}, {found.session_calls:,} new"),
    ]
    if refinement:
        kept = Refinement.model_validate(refinement)
        rows.append(("best paths kept", f"{kept.kept:,} of {kept.paths:,}, {kept.unscored:,} without a score"))
    return rows


def _decontamination(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were checked against, and how many were found."""
    checked = contamination.get("checked") or []
    if not checked:
        return "not checked: no evaluation split"
    asked, found = sum(each["questions"] for each in checked), contamination["questions"]
    splits = "1 evaluation split" if len(checked) == 1 else f"{len(checked):,} evaluation splits"
    dropped = contamination["dropped"]
    return f"checked against {splits} ({counted(asked, 'question')}): {found:,} found, {dropped:,} removed"


def effective_text(effective: EffectiveSize) -> str:
    """Kish's effective sample size if all pairs of a state, or of a question, said the same."""
    if effective.by_state is None or effective.by_question is None:
        return "-"
    return f"{effective.by_state:,.0f} (clustered by state), {effective.by_question:,.0f} (by question)"
