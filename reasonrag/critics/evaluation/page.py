"""`critic_evaluation.html`: the figures of an evaluation with their meaning, and the scores of chains as distributions.

Made of the record alone: the page computes no figure, needs no network and runs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from preference.export.private_files import write_file
from reasonrag.critics.evaluation.report import PAGE, ChainKind, CriticEvaluation
from reasonrag.rendering import html_templates

BINS, WIDTH, HEIGHT = 24, 640, 160


def write_page(folder: Path, report: CriticEvaluation) -> None:
    """Write it atomically."""
    page = html_templates().get_template("critic_evaluation.html.j2")
    chains, outcomes = distributions(report, "golden", "shuffled"), distributions(report, "won", "lost")
    write_file(folder / PAGE, page.render(report=report, chains=chains, outcomes=outcomes).encode())


def distributions(report: CriticEvaluation, *kinds: ChainKind) -> dict[str, Any] | None:
    """Histograms on one axis, as outlines of an SVG, and its ticks; None unless each has scores."""
    found = {kind: report.chain_scores.get(kind, []) for kind in kinds}
    if not all(found.values()):
        return None
    edges = np.histogram_bin_edges([score for scores in found.values() for score in scores], BINS)
    shares = {kind: np.histogram(scores, edges)[0] / len(scores) for kind, scores in found.items()}
    highest = max(each.max() for each in shares.values())
    drawn = [
        (kind, len(found[kind]), fmean(found[kind]), "".join(_outline(each / highest))) for kind, each in shares.items()
    ]
    return {"drawn": drawn, "ticks": (edges[0], edges[BINS // 2], edges[-1])}


def _outline(heights: Iterable[float]) -> Iterator[str]:
    yield f"M0 {HEIGHT}"
    for place, each in enumerate(heights, start=1):
        yield f"V{HEIGHT * (1 - each):.1f}H{WIDTH * place / BINS:.1f}"
    yield f"V{HEIGHT}Z"
