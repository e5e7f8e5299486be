"""Exact sums over pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podline.data.pixels import add_up, pixel_sums


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (7, 32, 32, 3), (300, 28, 28, 1), (700, 2, 3, 4), (2, 300, 300, 3), (2, 200, 200, 6)]
)
def test_sums_are_exact(shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    sums = pixel_sums(images)
    wide = images.astype(np.int64).reshape(-1, shape[-1])
    assert sums.count == len(wide)
    assert sums.sums == tuple(wide.sum(axis=0).tolist())
    assert sums.squares == tuple((wide * wide).sum(axis=0).tolist())
    # float64: NumPy's own rounding is below 1e-12 of the value
    np.testing.assert_allclose(sums.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sums.std, wide.std(axis=0), rtol=1e-12)


def test_a_count_that_float32_cannot_hold_does_not_round() -> None:
    sums = pixel_sums(np.full((1, 4097, 4099, 1), 255, np.uint8))
    assert sums.squares == (4097 * 4099 * 255 * 255,)
    assert sums.std == (0.0,)


@settings(deadline=None)  # a busy machine is no bug
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_however_the_work_is_divided(sizes: list[int], shuffler) -> None:
    images = noise(sum(sizes), 3, 3, 4)[..., :3]  # not contiguous
    edges = np.cumsum([0, *sizes])
    parts = [pixel_sums(images[start:stop]) for start, stop in itertools.pairwise(edges)]
    shuffler.shuffle(parts)
    assert add_up(parts) == pixel_sums(images)
