"""What the drawings of evaluations share: colours, style, short labels, and how a figure becomes a standalone SVG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import drawing_style
from reasonrag.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0b6e99", "#c4651b", "#5c7f2b", "#8a4fa0", "#b03a48", "#4d4d4d")
"""Of conditions, in their order: apart in lightness or hue for colour-blind readers."""
INK, LINE = "#222222", "#d5d5d5"


def svg_of(draw: Callable[[Figure], None], *, inches: tuple[float, float], grid: str, without: tuple[str, ...]) -> str:
    """A standalone SVG. inches: width and height. grid, without: see `drawing_style`. draw: fills the figure."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    content = io.StringIO()
    style = drawing_style(ink=INK, line=LINE, size=10, grid=grid, without=without)
    with mpl.rc_context(style), warnings.catch_warnings():
        # text is rendered by the viewer, so fonts missing here do not matter
        warnings.filterwarnings("ignore", r"Glyph .* missing")
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(content, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return re.sub(r"<metadata>.*?</metadata>", "", content.getvalue(), flags=re.DOTALL)


def label(text: str) -> str:
    """Outside text as it may stand in a drawing."""
    line = on_one_line(mask_secrets(text, secrets()))
    return line if len(line) <= 40 else f"{line[:39]}…"  # noqa: PLR2004 - what fits beside a drawing
