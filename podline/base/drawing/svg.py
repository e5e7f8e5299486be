"""A chart as SVG text: an element with the colours and font of an HTML page, or a separate file on white."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

# Role → its colour in a separate file.
ON_PAPER = {
    "ink": "#1b1f23",
    "muted": "#626a73",
    "rule": "#dde1e5",
    "accent": "#1f5fa8",
    "second": "#c05a17",
    "paper": "#ffffff",
}
# Pixels of a separate file per SVG unit.
_SCALE = 1.6


@dataclass(frozen=True)
class Svg:
    """A chart.

    Attributes:
        alt: description of the chart for screen readers.
        width: width in SVG units.
        height: height in SVG units.
        content: the SVG elements of the chart, with the page's CSS variables as colours.
        style: the CSS class.
    """

    alt: str
    width: float
    height: float
    content: Markup
    style: str = "chart"

    def html(self) -> Markup:
        """Return the chart as an ``<svg>`` element for an HTML page."""
        return Markup(
            '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" style="max-width: {:.0f}px">{}</svg>'
        ).format(self.style, self.alt, self.width, self.height, 1.5 * self.width, self.content)

    def file(self) -> str:
        """Return the chart as the text of a complete SVG file."""
        content = str(self.content)
        for role, colour in ON_PAPER.items():
            content = content.replace(f"var(--{role})", colour)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{_SCALE * self.width:g}" height="{_SCALE * self.height:g}" '
            f'font-family="Roboto, Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="{ON_PAPER["paper"]}"/>{content}</svg>'
        )
