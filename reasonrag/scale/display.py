"""Terminal output of merging. Model and passage text is never treated as markup."""

from __future__ import annotations

from pathlib import Path

from reasonrag.exploration.display import show_run
from reasonrag.files import JOURNAL, ROLLOUTS
from reasonrag.rendering import counted
from reasonrag.scale.merge import Merged
from reasonrag.terminal import print_shown


def show_merged(merged: Merged) -> None:
    """Show what was joined, and the next command."""
    run = Path(merged.run)
    print_shown(f"joined {counted(merged.ranks, 'rank')}: {counted(merged.questions, 'question')}")
    if merged.verified:
        print_shown(f"verified: one process makes the same {ROLLOUTS} of {run / JOURNAL}")
    if merged.summary:
        show_run(merged.summary)
    else:
        print_shown(f"wrote {run / JOURNAL}")
        print_shown("next: the same command without --shard; every answer is in this journal")
