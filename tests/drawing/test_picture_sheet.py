from __future__ import annotations

import numpy as np

from podline.drawing.picture_sheet import Block, Picture, PictureRow, sheet


def test_a_sheet_of_one_picture_is_as_wide_as_its_words():
    rows = [PictureRow("as stored", [Picture(np.zeros((8, 8, 3), np.uint8), "1 mouse")])]
    figure = sheet([Block("What the network of keypoints.mice is fed", "as stored; " * 12, rows)])
    figure.canvas.draw()  # type: ignore[no-untyped-call]
    assert max(text.get_window_extent().x1 for text in figure.axes[0].texts) <= figure.bbox.x1
