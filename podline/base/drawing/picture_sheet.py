"""Draws rows of pictures below headings as one matplotlib figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from podline.base.arrays import Image

INK, MUTED = "#1c1c1c", "#6b6b6b"
# Sides of a picture in inches. At _DPI, a picture of 28 or 32 pixels is enlarged about fivefold.
SMALL, LARGE = 1.1, 2.3
_GAP, _MARGIN, _LABEL, _LINE, _DPI = 0.14, 0.3, 1.15, 0.17, 144
# Font size in points, and how many characters of this size fit above a picture one inch wide.
_FONT, _CHARACTERS = 8.5, 15.4
_HEADING = 13


class SheetPicture(NamedTuple):
    """An image, uint8 (height, width, channels), with the caption above the image and the caption's colour."""

    image: Image
    caption: str = ""
    colour: str = INK


class PictureRow(NamedTuple):
    """A row of pictures, with a label on the left."""

    label: str
    pictures: list[SheetPicture]


class SheetBlock(NamedTuple):
    """Rows of pictures below a heading and one line of explanation (``about``)."""

    heading: str
    about: str
    rows: list[PictureRow]


class Sheet(Figure):
    """A figure that notebooks display even without matplotlib's notebook support."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def sheet(blocks: Sequence[SheetBlock], side: float = SMALL) -> Sheet:
    """Draw blocks one below the other as a figure; the longer side of each picture is ``side`` inches."""
    columns = max(len(row.pictures) for block in blocks for row in block.rows)
    pictures = _LABEL + columns * (side + _GAP)
    height = 2 * _MARGIN + sum(_height(block, side) for block in blocks)
    # Names of classes and splits may be anything, like "$x$".
    with mpl.rc_context({"text.parse_math": False, "font.size": _FONT, "text.color": INK}):
        width = 2 * _MARGIN + max(pictures, *map(_width_of_texts, blocks))
        figure = Sheet(figsize=(width, height), dpi=_DPI, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        top = height - _MARGIN
        for block in blocks:
            _draw(axes, block, top, side)
            top -= _height(block, side)
        axes.axis((0, width, 0, height))  # in inches
    return figure


def _width_of_texts(block: SheetBlock) -> float:
    """Return the larger of the widths of heading and explanation, in inches."""
    heading = TextPath((0, 0), block.heading, _HEADING, prop=FontProperties(weight="bold"))
    about = TextPath((0, 0), block.about, _FONT)
    return max(text.get_extents().width for text in (heading, about)) / 72


def _height(block: SheetBlock, side: float) -> float:
    return 0.75 + sum(_row_height(row, side) for row in block.rows)


def _row_height(row: PictureRow, side: float) -> float:
    return side + _GAP + _LINE * _caption_lines(row)


def _caption_lines(row: PictureRow) -> int:
    return max((len(picture.caption.splitlines()) for picture in row.pictures), default=0)


def _draw(axes: Axes, block: SheetBlock, top: float, side: float) -> None:
    axes.text(_MARGIN, top - 0.2, block.heading, fontsize=_HEADING, fontweight="bold")
    axes.text(_MARGIN, top - 0.42, block.about, color=MUTED)
    y = top - 0.6
    for row in block.rows:
        upper = y - _LINE * _caption_lines(row)
        axes.text(_MARGIN, upper - side / 2, row.label, color=MUTED, va="center")
        for number, picture in enumerate(row.pictures):
            left = _MARGIN + _LABEL + number * (side + _GAP)
            height, width = (side * length / max(picture.image.shape[:2]) for length in picture.image.shape[:2])
            grey = picture.image.shape[-1] == 1
            shown = picture.image[..., 0] if grey else picture.image
            extent = (left, left + width, upper - height, upper)
            axes.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=extent)
            axes.text(left, upper + 0.07, picture.caption, color=picture.colour, fontsize=_font_size(picture, side))
        y -= _row_height(row, side)


def _font_size(picture: SheetPicture, side: float) -> float:
    """Return the font size in points: the usual one, or a smaller one at which the caption fits above the picture."""
    return _FONT * min(1.0, _CHARACTERS * side / max(map(len, picture.caption.splitlines()), default=1))
