"""Draws charts with matplotlib as SVG text that uses the colours and font of the HTML page around it.

matplotlib writes fixed colours. Each role (ink, rule, accent …) is drawn in a unique colour, which is then replaced by
the page's CSS variable of that name. So one drawing fits the light page, the dark page and paper. Labels stay text
elements, so they are sharp, small and searchable.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podline.base.drawing.svg import Svg

# Role → the unique colour that stands for the role in matplotlib's output.
_ROLES = {
    "ink": "#010101",
    "muted": "#020202",
    "rule": "#030303",
    "accent": "#040404",
    "second": "#050505",
    "paper": "#060606",
}
INK, MUTED, RULE, ACCENT, SECOND, PAPER = _ROLES.values()

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # Class names may be anything, like "$x$".
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}


class Drawing:
    """A matplotlib figure; :func:`chart` sets ``svg`` at the end of its body."""

    svg: Svg

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.figure.patch.set_alpha(0)

    def axes(self, rows: int = 1, heights: Sequence[float] | None = None) -> list[Axes]:
        """Return axes one below the other with a common x axis; ``heights`` are their relative heights."""
        grid = self.figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes in grid[:, 0]:
            axes.patch.set_alpha(0)
        return list(grid[:, 0])


@contextmanager
def chart(name: str, alt: str, width: float = 4.6, height: float = 2.9) -> Iterator[Drawing]:
    """Yield a drawing of ``width`` × ``height`` inches (72 SVG units each); ``alt`` is the text for screen readers."""
    # The salt makes the ids in a chart reproducible, and different from those of other charts.
    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(style):
        drawing = Drawing(width, height)
        yield drawing
        buffer = io.StringIO()
        drawing.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawing.svg = _for_page(buffer.getvalue(), alt)


def _for_page(svg: str, alt: str) -> Svg:
    """Convert matplotlib's SVG file to an element without XML prologue that uses the page's colours and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    for role, colour in _ROLES.items():
        svg = svg.replace(colour, f"var(--{role})")
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, count=1, flags=re.DOTALL)
    # Ids must be unique in the page, but matplotlib uses the same ids in every chart, such as line2d_1. Only elements
    # whose id is a hash are referenced.
    svg = re.sub(r" id=\"[a-zA-Z.0-9]+_\d+\"", "", svg)
    svg = svg.replace("xlink:href", "href")
    width, height = re.findall(r"(?:width|height)=\"([\d.]+)pt\"", svg[: svg.index(">")])[:2]
    content = svg[svg.index(">") + 1 :].strip().removesuffix("</svg>")
    return Svg(alt, float(width), float(height), Markup(content))  # noqa: S704 (matplotlib escapes texts)
