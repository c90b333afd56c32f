"""The laboratory's picture: the share right of all pairs against the replies that a right pair takes. Knows points, not
how they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

Points = Sequence[tuple[float, float]]
TICKS = (5, 10, 20, 50, 100, 200)


def draw(panels: Mapping[str, Mapping[str, Points]], out: Path, *, ringed: int) -> None:
    """One panel per setting by name; a line per plan through its points (replies per right pair, share right of all).

    ringed: which point of a line is the default's; plans with one point have no ring.
    """
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "reasonrag"  # the same points give the same file
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels) + 2.2, 3.9), layout="constrained")
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for axis, (setting, plans) in zip(axes, panels.items(), strict=True):
        for colour, (name, points) in zip(colours, plans.items(), strict=False):
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", ms=4, color=colour, label=name)
            if len(points) > ringed:
                axis.plot(*points[ringed], marker="o", ms=10, mfc="none", mec=colour)
        axis.axhline(0.95, color="0.6", linewidth=0.8, linestyle="--")
        axis.set_xscale("log")
        axis.set_xticks([each for each in TICKS if axis.get_xlim()[0] < each < axis.get_xlim()[1]])
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_title(setting, fontsize=10)
        axis.set_xlabel("replies per right pair")
    axes[0].set_ylabel("right of all kept pairs")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(out, metadata={"Date": None})
