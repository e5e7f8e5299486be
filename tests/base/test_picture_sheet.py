"""Sheets of pictures."""

from __future__ import annotations

import numpy as np

from podline.base.drawing.picture_sheet import PictureRow, SheetBlock, SheetPicture, sheet


def test_texts_with_a_dollar_sign_are_no_formulas() -> None:
    picture = SheetPicture(np.zeros((8, 8, 3), np.uint8), r"$\foo$")
    drawn = sheet([SheetBlock(r"$\foo$", r"tested on $\foo$", [PictureRow(r"$\foo$", [picture])])])
    assert drawn._repr_png_().startswith(b"\x89PNG")
