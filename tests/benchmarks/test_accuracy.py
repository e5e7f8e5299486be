"""Macro accuracy, its interval, and the rows of the comparison with plain Keras."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import accuracy

LABELS = np.array([0] * 8 + [1] * 2)


def test_each_class_counts_the_same() -> None:
    right = np.array([True] * 8 + [True, False])
    share, half = accuracy.macro(right, LABELS)
    assert share == pytest.approx(0.75)
    # The first class has no spread; of the other's two examples one is right: variance 0.5, halved for two, over 2².
    assert half == pytest.approx(1.96 * np.sqrt(0.5 / 2 / 4))


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
