"""What a person sees of a review in the terminal: the sample that went out, or how often people agree with the labels.

Decides the drawing only. Names and notes come from files of others and are never markup here.
"""

from __future__ import annotations

from preference.export.formats import PAIRS_FILE, plain_types
from preference.review_statistics import RemarkedPair, ReviewerReport, ReviewReport
from preference.statistics import Bin, Share
from reasonrag.curation.review import ReviewSample
from reasonrag.rendering import counted
from reasonrag.terminal import agreement_text, on_one_line, print_next, print_shown, print_table, share_with_interval

MAX_REMARKS = 20
MIN_VERDICTS = 10
"""Verdicts needed before the report points out a deviation."""
EVEN = 0.5


def show_sample(sample: ReviewSample) -> None:
    """Where it is, what to do with it, and the command that reads it."""
    of = f"{sample.sampled:,} of {counted(sample.pairs, 'pair')}"
    without = ", ".join(f"{count:,} {name}" for name, count in sample.left_out.items())
    print_shown(f"wrote {sample.out}: {of}{f'; rows left out: {without}' if without else ''}")
    print_shown("Which step should the agent take? Verdicts: a, b, tie (as good), skip (cannot say)")
    print_next("review", sample.directory, "--judgements", sample.out)


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
        ("A chosen", share_with_interval(report.says_a) + _side_bias(report.says_a)),
    ]
    print_table(f"review by {report.reviewer}", rows)
    _list("disagreements with labels", report.disagreements)
    _list("notes on other pairs", report.notes)


def _confidence_row(each: Bin) -> tuple[str, str]:
    """A bin of confidence: claimed, and confirmed by the reviewer."""
    claim, high, low = each.mean_confidence or 0.0, each.confirmed.high, each.confirmed.low
    verdict = ""
    if high is not None and low is not None and each.confirmed.of >= MIN_VERDICTS:
        verdict = "; overconfident" if high < claim else "; underconfident" if low > claim else ""
    agreed = agreement_text(each)
    return f"  confidence {each.low:.1f} to {each.high:.1f}", f"{agreed}; claimed {claim:.2f}{verdict}"


def _side_bias(share: Share) -> str:
    """A note if a side was preferred regardless of content; sides are assigned at random."""
    if share.of < MIN_VERDICTS or share.low is None or share.high is None or share.low <= EVEN <= share.high:
        return ""
    return f"; biased towards {'A' if share.low > EVEN else 'B'}, although sides are assigned at random"


def _list(title: str, remarks: list[RemarkedPair]) -> None:
    if not remarks:
        return
    print_shown(f"{title} (rows of {PAIRS_FILE}, from 1):")
    for each in remarks[:MAX_REMARKS]:
        name = each.pair_id or each.pair
        place = f"row {each.row:,}" if each.file == PAIRS_FILE else f"{each.file} row {each.row:,}"
        over = "" if each.rejected_action_type == each.chosen_action_type else f" over {each.rejected_action_type}"
        layer = "" if each.layer is None else f", depth {each.layer}"
        sure = "" if each.confidence is None else f", confidence {each.confidence:.2f}"
        print_shown(f"  {name}  {place}: {plain_types(each.chosen_action_type + over)}{layer}{sure}")
        if each.note:
            print_shown(f"    note: {on_one_line(each.note)}")
    if len(remarks) > MAX_REMARKS:
        print_shown(f"  .. and {len(remarks) - MAX_REMARKS:,} more; --json has all")
