"""Images of the data set as PNG files inside the page."""

from __future__ import annotations

import base64
import io

import cv2
import matplotlib.image
import numpy as np
import numpy.typing as npt

# The side that a small image is enlarged to, at least, in pixels: sharp on a screen of high resolution as well.
_SIDE = 192
_QUALITY = 88


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


def photo_uri(image: npt.NDArray[np.uint8]) -> str:
    """A picture as a ``data:`` address, as a JPEG of its own size: photographs would be ten times as large as PNG.

    Args:
        image: uint8, (height, width, 3), red, green, blue.
    """
    encoded = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode()
