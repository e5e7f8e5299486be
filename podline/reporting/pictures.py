"""Images of the data set as PNG files inside the page."""

from __future__ import annotations

import base64
import io

import matplotlib.image
import numpy as np
import numpy.typing as npt

# The side that a small image is enlarged to, at least, in pixels: sharp on a screen of high resolution as well.
_SIDE = 192


def data_uri(image: npt.NDArray[np.uint8]) -> str:
    """An image as a ``data:`` address, each of its pixels enlarged to a square (nearest neighbour, nothing invented).

    Args:
        image: uint8, (height, width, channels); one channel is grey, three are red, green, blue.
    """
    factor = max(1, -(-_SIDE // max(image.shape[:2])))
    enlarged = image.repeat(factor, axis=0).repeat(factor, axis=1)
    colours = np.broadcast_to(enlarged, (*enlarged.shape[:2], 3))
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, np.ascontiguousarray(colours), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
