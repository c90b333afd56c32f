"""`critic_evaluation.html`: the figures of an evaluation with their meaning, and the scores of chains as distributions.

Made of the record alone: the page computes no figure, needs no network and runs no script.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from preference.export.private_files import write_file
from reasonrag.critics.evaluation.report import PAGE, ChainKind, CriticEvaluation
from reasonrag.rendering import html_templates

BINS = 24


def write_page(folder: Path, report: CriticEvaluation) -> None:
    """Write it atomically."""
    page = html_templates().get_template("critic_evaluation.html.j2")
    chains, outcomes = distributions(report, "golden", "shuffled"), distributions(report, "won", "lost")
    write_file(folder / PAGE, page.render(report=report, chains=chains, outcomes=outcomes).encode())


def distributions(report: CriticEvaluation, *kinds: ChainKind) -> dict[str, Any] | None:
    """Histograms on one axis, as heights of the bars to 1, and its ticks; None unless each has scores."""
    found = {kind: report.chain_scores.get(kind, []) for kind in kinds}
    if not all(found.values()):
        return None
    edges = np.histogram_bin_edges([score for scores in found.values() for score in scores], BINS)
    shares = {kind: np.histogram(scores, edges)[0] / len(scores) for kind, scores in found.items()}
    highest = max(each.max() for each in shares.values())
    drawn = [(kind, len(found[kind]), fmean(found[kind]), shares[kind] / highest) for kind in kinds]
    return {"drawn": drawn, "ticks": (edges[0], edges[BINS // 2], edges[-1])}
