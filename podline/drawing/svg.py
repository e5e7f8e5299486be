"""A chart as SVG text: an element of a page, in the page's colours and font, or a file of its own on white paper."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

# The page's roles on white paper.
ON_PAPER = {
    "ink": "#1b1f23",
    "muted": "#626a73",
    "rule": "#dde1e5",
    "accent": "#1f5fa8",
    "second": "#c05a17",
    "paper": "#ffffff",
}
# Of the page's units, which are small: a file is looked at by itself.
_SCALE = 1.6


@dataclass(frozen=True)
class Svg:
    """A chart.

    Attributes:
        alt: what it shows, in words.
        width: in the page's units.
        height: in the page's units.
        content: its elements, with the page's CSS variables as colours.
        style: the CSS class.
    """

    alt: str
    width: float
    height: float
    content: Markup
    style: str = "chart"

    def html(self) -> Markup:
        """Return an element of a page."""
        return Markup(
            '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" style="max-width: {:.0f}px">{}</svg>'
        ).format(self.style, self.alt, self.width, self.height, 1.5 * self.width, self.content)

    def file(self) -> str:
        """Return a whole SVG file."""
        content = str(self.content)
        for role, colour in ON_PAPER.items():
            content = content.replace(f"var(--{role})", colour)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{_SCALE * self.width:g}" height="{_SCALE * self.height:g}" '
            f'font-family="Roboto, Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="{ON_PAPER["paper"]}"/>{content}</svg>'
        )
