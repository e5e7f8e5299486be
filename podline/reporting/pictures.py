"""Images of the data set as PNG data URIs for the page."""

from __future__ import annotations

import base64
import io

import cv2
import matplotlib.image
import numpy as np
import numpy.typing as npt

# The side that a small image is enlarged to, at least, in pixels: sharp on a screen of high resolution as well.
_SIDE = 192
# Bytes of a photograph, of one of people that were lost, and of a small one of which there are dozens. A page has 40 of
# the first kind, 16 of the second and 38 of the third at most, in base64: it stays below 5 MB and can be sent by mail.
PHOTO, LOST_PHOTO, SMALL_PHOTO = 64_000, 22_000, 16_000
_QUALITIES = (88, 80, 70, 58, 45, 30)
_SMALLER = 0.7


def data_uri(image: npt.NDArray[np.uint8]) -> str:
    """An image as a ``data:`` address, each of its pixels enlarged to a square (nearest neighbour, nothing invented).

    Args:
        image: uint8, (height, width, channels); one channel is grey, three are red, green, blue. One that is larger
            than it is shown becomes a photograph.
    """
    factor = -(-_SIDE // max(image.shape[:2]))
    enlarged = image.repeat(factor, axis=0).repeat(factor, axis=1)
    colours = np.broadcast_to(enlarged, (*enlarged.shape[:2], 3))
    if factor == 1:
        return photo_uri(colours)
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, np.ascontiguousarray(colours), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def photo_uri(image: npt.NDArray[np.uint8], most: int = PHOTO) -> str:
    """A picture as a ``data:`` address, as a JPEG file: photographs would be ten times as large as PNG.

    Args:
        image: uint8, (height, width, 3), red, green, blue.
        most: bytes of the file; what has more details loses some, and in the end pixels.
    """
    while True:
        for quality in _QUALITIES:
            encoded = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
            if len(encoded) <= most:
                return "data:image/jpeg;base64," + base64.b64encode(encoded).decode()
        image = np.asarray(cv2.resize(image, None, fx=_SMALLER, fy=_SMALLER, interpolation=cv2.INTER_AREA), np.uint8)
