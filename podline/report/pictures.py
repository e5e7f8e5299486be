"""Encodes images of the data set as data URIs for the page."""

from __future__ import annotations

import base64

import cv2
import numpy as np
import numpy.typing as npt

# Images whose longer side has at least this many pixels are encoded as JPEG, smaller images as PNG.
_LARGE = 192
# Largest number of bytes of a photograph, of a picture with lost people, and of a small panel. A page has at most 40,
# 16 and 38 of them, in base64, so the page is smaller than 5 MB and can be sent by mail.
PHOTO, LOST_PHOTO, SMALL_PHOTO = 64_000, 22_000, 16_000
_QUALITIES = (88, 80, 70, 58, 45, 30)
_SMALLER = 0.7


def data_uri(image: npt.NDArray[np.uint8], most: int = PHOTO) -> str:
    """Encode an image as a ``data:`` URI: a small image losslessly as PNG, a large one as JPEG.

    Args:
        image: uint8, (height, width, channels); one channel is grey, three are red, green, blue.
        most: largest number of bytes of a photograph's file.
    """
    colours = np.broadcast_to(image, (*image.shape[:2], 3))
    if max(image.shape[:2]) >= _LARGE:
        return photo_uri(colours, most)
    encoded = cv2.imencode(".png", np.ascontiguousarray(colours[..., ::-1]))[1].tobytes()
    return "data:image/png;base64," + base64.b64encode(encoded).decode()


def photo_uri(image: npt.NDArray[np.uint8], most: int = PHOTO) -> str:
    """Encode a photograph as a ``data:`` URI with JPEG, since PNG would be ten times as large.

    Args:
        image: uint8, (height, width, 3), red, green, blue.
        most: largest number of bytes of the file; detailed images lose quality, and then pixels.
    """
    while True:
        for quality in _QUALITIES:
            encoded = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
            if len(encoded) <= most:
                return "data:image/jpeg;base64," + base64.b64encode(encoded).decode()
        image = np.asarray(cv2.resize(image, None, fx=_SMALLER, fy=_SMALLER, interpolation=cv2.INTER_AREA), np.uint8)
