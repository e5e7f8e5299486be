"""Images of the data set as PNG data URIs for the page."""

from __future__ import annotations

import base64

import cv2
import numpy as np
import numpy.typing as npt

# The longer side of an image that is a photograph, in pixels; smaller ones are enlarged by the browser.
_LARGE = 192
# Bytes of a photograph, of one of people that were lost, and of a small one of which there are dozens. A page has 40 of
# the first kind, 16 of the second and 38 of the third at most, in base64: it stays below 5 MB and can be sent by mail.
PHOTO, LOST_PHOTO, SMALL_PHOTO = 64_000, 22_000, 16_000
_QUALITIES = (88, 80, 70, 58, 45, 30)
_SMALLER = 0.7


def data_uri(image: npt.NDArray[np.uint8], most: int = PHOTO) -> str:
    """Return an image as a ``data:`` address: of a few pixels as they are, as a PNG file; a large one as a photograph.

    Args:
        image: uint8, (height, width, channels); one channel is grey, three are red, green, blue.
        most: bytes of a photograph's file.
    """
    colours = np.broadcast_to(image, (*image.shape[:2], 3))
    if max(image.shape[:2]) >= _LARGE:
        return photo_uri(colours, most)
    encoded = cv2.imencode(".png", np.ascontiguousarray(colours[..., ::-1]))[1].tobytes()
    return "data:image/png;base64," + base64.b64encode(encoded).decode()


def photo_uri(image: npt.NDArray[np.uint8], most: int = PHOTO) -> str:
    """Return a picture as a ``data:`` address, as a JPEG file: photographs would be ten times as large as PNG.

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
