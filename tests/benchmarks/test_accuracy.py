"""Macro accuracy, its interval, and the rows of the comparison with plain Keras."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import accuracy
from podline.intervals import Z

LABELS = np.array([0] * 8 + [1] * 2)


def test_each_class_counts_the_same() -> None:
    right = np.array([True] * 8 + [True, False])
    share = accuracy.macro(right, LABELS)
    assert share.value == pytest.approx(0.75)
    # The first class has no spread. Of the other's two examples one is right: each moves the mean by 0.5 / 2 / 2.
    assert share.high - share.value == pytest.approx(Z * np.sqrt(2 * 0.125**2 * 10 / 9))


def test_the_difference_is_from_the_best_script_by_the_same_examples() -> None:
    right, wrong = np.ones(10, bool), np.zeros(10, bool)
    ours, *scripts = accuracy.rows(
        {"recipe `images`": [(right, 10.0), (right, 20.0)], "worse": [(wrong, 1.0)], "better": [(LABELS == 0, 1.0)]},
        LABELS,
    )
    assert ours == "| recipe `images` | 100.0 % ± 0.0 | 100.0 to 100.0 | +50.0 [+50.0, +50.0] | 15 s |"
    assert scripts == [
        "| worse | 0.0 % ± 0.0 | 0.0 to 0.0 | -50.0 [-50.0, -50.0] | 1 s |",
        "| better | 50.0 % ± 0.0 | 50.0 to 50.0 |  | 1 s |",
    ]
