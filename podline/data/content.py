"""Finds equal images: by checksum first, confirmed by sha256."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import google_crc32c
import numpy as np
import numpy.typing as npt

_CONFIRMED_AT_ONCE = 1_000


def image_crcs(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Compute the CRC-32C of each image's bytes, (n,): equal images have equal ones, and few others do.

    Args:
        images: uint8, (n, size), each row contiguous.
    """
    return np.fromiter(map(google_crc32c.value, images), np.uint32, len(images))


def same_images(
    crcs: npt.NDArray[np.uint32], read: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.uint8]]
) -> list[list[int]]:
    """Find the images that are there more than once.

    Args:
        crcs: of all images, by :func:`image_crcs`.
        read: gives some of the images, by position, as uint8 (n, …); asked only for those whose CRC is not unique.

    Returns:
        For each such image its positions, ascending; ordered by the first of them.
    """
    _values, which, counts = np.unique(crcs, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[which] > 1)
    groups: dict[bytes, list[int]] = {}
    for start in range(0, len(candidates), _CONFIRMED_AT_ONCE):
        positions = candidates[start : start + _CONFIRMED_AT_ONCE]
        for position, image in zip(positions.tolist(), np.ascontiguousarray(read(positions)), strict=True):
            groups.setdefault(hashlib.sha256(image.data).digest(), []).append(position)
    return [group for group in groups.values() if len(group) > 1]
