"""Encodes resized images as JPEG files, which records store instead of pixels."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.fitting import fitted
from podline.data.pictures import picture_of
from podline.data.rows import RowBlock

Pixels = npt.NDArray[np.uint8]

# Files of 644 flower photographs at 224 pixels have a ninth of the bytes of the pixels.
QUALITY = 90


@dataclass(frozen=True)
class JpegFiles:
    """The JPEG files of decoded images by row; a :class:`podline.data.rows.FilesByRow`.

    Attributes:
        block: the decoded images.
        shape: (height, width, channels) of each image.
    """

    block: RowBlock
    shape: tuple[int, int, int]

    def read_files(self, images: npt.NDArray[np.int64]) -> list[bytes]:
        """Encode some images as files."""
        stored = self.block.read(images, math.prod(self.shape))
        return [encoded(image) for image in stored.reshape(-1, *self.shape)]

    def seen(self, images: Pixels) -> Pixels:
        """Return some images as a reader will decode their files, (n, height, width, channels)."""
        made = [fitted(picture_of(encoded(image)).pixels, self.shape) for image in images]
        return np.stack(made) if made else images


def encoded(image: Pixels) -> bytes:
    """Encode an image, uint8 (height, width, 1 or 3 channels), as a JPEG file."""
    stored: Any = image if image.shape[2] == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", stored, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return file.tobytes()


@functools.lru_cache(maxsize=1)
def encoder_digest() -> str:
    """Return a hash, 16 hexadecimal digits, of the JPEG files that this machine encodes from fixed images."""
    ramp = np.arange(40 * 48 * 3, dtype=np.int64) ** 2 % 251
    colour = ramp.astype(np.uint8).reshape(40, 48, 3)
    return hashlib.sha256(encoded(colour) + encoded(colour[..., :1])).hexdigest()[:16]
