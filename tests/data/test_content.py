"""Which images are the same."""

from __future__ import annotations

import numpy as np

from podline.data.content import image_crcs, same_images


def test_groups_of_equal_images_in_order() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3000, 48), np.uint8)
    images[2999] = images[5]
    images[[1000, 70]] = images[2000]
    assert same_images(image_crcs(images), lambda positions: images[positions]) == [[5, 2999], [70, 1000, 2000]]


def test_an_equal_checksum_is_not_enough() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(4, 3)
    images[3] = images[0]
    crcs = np.zeros(4, np.uint32)  # as if all had the same one
    assert same_images(crcs, lambda positions: images[positions]) == [[0, 3]]


def test_only_candidates_are_read() -> None:
    images = np.random.default_rng(0).integers(0, 256, (500, 48), np.uint8)
    images[7] = images[300]
    asked = []

    def read(positions: np.ndarray) -> np.ndarray:
        asked.extend(positions.tolist())
        return images[positions]

    same_images(image_crcs(images), read)
    assert asked == [7, 300]


def test_rows_within_frames_are_taken_as_they_are() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (10, 64), np.uint8)
    assert (image_crcs(frames[:, 8:56]) == image_crcs(frames[:, 8:56].copy())).all()
