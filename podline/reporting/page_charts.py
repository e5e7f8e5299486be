"""The report's charts as PNG files, for places that show pictures and no HTML.

A page's chart takes its colours and its font from the page (:mod:`podline.drawing.drawing`); here it gets those of
the page on white paper. Nothing is drawn again, so this needs no matplotlib.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from podline.drawing.paper import ON_PAPER

_CHART = re.compile(
    r'<svg class="chart" role="img" aria-label="(?P<alt>[^"]*)" viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"'
    r"[^>]*>(?P<drawing>.*?)</svg>",
    re.DOTALL,
)


# Of the page's units, which are small: a chart is looked at by itself.
_SCALE = 1.6


class Chart(NamedTuple):
    """A picture.

    Attributes:
        alt: what it shows, in words.
        svg: a whole SVG file.
    """

    alt: str
    svg: str


def charts_in(page: str) -> list[Chart]:
    """The charts of a report's page, in its order.

    Args:
        page: the HTML document.
    """
    return [Chart(html.unescape(found["alt"]), _file(found)) for found in _CHART.finditer(page)]


def _file(found: re.Match[str]) -> str:
    width, height = float(found["width"]), float(found["height"])
    drawing = found["drawing"]
    for role, colour in ON_PAPER.items():
        drawing = drawing.replace(f"var(--{role})", colour)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{_SCALE * width:g}" '
        f'height="{_SCALE * height:g}" font-family="Roboto, Helvetica, Arial, sans-serif">'
        f'<rect width="100%" height="100%" fill="{ON_PAPER["paper"]}"/>{drawing}</svg>'
    )
