"""What a person sees of a review in the terminal: the sample that went out, or how often people agree with the labels.

Decides the drawing only. Names and notes come from files of others and are never markup here.
"""

from __future__ import annotations

from preference.export.formats import plain_types
from preference.review_statistics import ReviewerReport, ReviewReport
from preference.statistics import Bin
from reasonrag.curation.review import ReviewSample
from reasonrag.rendering import counted
from reasonrag.terminal import agreement_text, print_next, print_shown, print_table, share_with_interval


def show_sample(sample: ReviewSample) -> None:
    """Where it is, what to do with it, and the command that reads it."""
    of = f"{sample.sampled:,} of {counted(sample.pairs, 'pair')}"
    without = ", ".join(f"{count:,} {name}" for name, count in sample.left_out.items())
    print_shown(f"wrote {sample.out}: {of}{f'; rows left out: {without}' if without else ''}")
    print_shown("Which step should the agent take? Verdicts: a, b, tie (as good), skip (cannot say)")
    for_label_studio = sample.out.lower().endswith(".json")
    print_next("review", sample.directory, "--judgements", "ITS_EXPORT.json" if for_label_studio else sample.out)


def show_review(report: ReviewReport) -> None:
    """The results of each reviewer, then the agreement between reviewers."""
    for each in report.reviewers:
        _show_reviewer(each)
    if report.between:
        rows = [(f"{each.one}, {each.other}", share_with_interval(each.alike)) for each in report.between]
        print_table("agreement between reviewers, ties included", rows)
    print_shown("intervals treat pairs as independent, although pairs of a question are similar")


def _show_reviewer(report: ReviewerReport) -> None:
    ties = f", {report.ties:,} of them {'a tie' if report.ties == 1 else 'ties'}" if report.ties else ""
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    flipped = [("labels exchanged", agreement_text(report.flipped))] if report.flipped.right.of else []
    rows = [
        ("judged", counted(report.judged, "pair") + ties + skipped),
        ("agreement with labels", agreement_text(report.agreement)),
        *((f"  {plain_types(name)}", agreement_text(each)) for name, each in report.by_action_type.items()),
        *(_confidence_row(each) for each in report.by_confidence if each.mean_confidence is not None),
        *flipped,
        ("A chosen", share_with_interval(report.says_a)),
        ("disagreements with labels", f"{counted(len(report.disagreements), 'pair')}: --json has them, with all notes"),
    ]
    print_table(f"review by {report.reviewer}", rows)


def _confidence_row(each: Bin) -> tuple[str, str]:
    """A bin of confidence: claimed, and confirmed by the reviewer."""
    claimed = f"{agreement_text(each)}; claimed {each.mean_confidence or 0.0:.2f}"
    return f"  confidence {each.low:.1f} to {each.high:.1f}", claimed
