from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from podline.errors import ArtifactError, DivergenceError
from podline.kinds.classification.tally import ClassificationTally

Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def examples(count: int, classes: int, seed: int = 0) -> Batch:
    """Logits of a model that is right more often than not; many are equal, as those of a coarse model are."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    logits = generator.normal(0, 3, (count, classes)).astype(np.float32)
    logits[np.arange(count), labels] += 4
    logits[::3] = np.round(logits[::3])
    return logits, labels


def tallied(batch: Batch, *sizes: int) -> ClassificationTally:
    """What is counted of batches of these sizes, or of one."""
    logits, labels = batch
    tally = ClassificationTally(logits.shape[1])
    ends = np.cumsum(sizes or (len(labels),))
    for end, size in zip(ends, sizes or (len(labels),), strict=True):
        tally.add(logits[end - size : end].copy(), labels[end - size : end].copy())
    assert ends[-1] == len(labels)
    return tally


def everything(tally: ClassificationTally) -> list[object]:
    names = [str(number) for number in range(tally.classes)]
    mistaken = tally.confusion() or tally.confused()
    return [tally.figures(), mistaken, tally.per_class(names), tally.guesses().to_bytes(), tally.mistakes()]


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_batches_of_1_7_and_128_give_the_same_bits(classes: int) -> None:
    batch = examples(517, classes)
    whole = everything(tallied(batch))
    for size in (1, 7, 128):
        assert everything(tallied(batch, *[size] * (517 // size), *([517 % size] if 517 % size else []))) == whole


def test_of_many_classes_the_mistakes_stand_for_the_matrix() -> None:
    logits, labels = examples(2_000, 300)
    tally, matrix = tallied((logits, labels)), np.zeros((300, 300), int)
    np.add.at(matrix, (labels, logits.argmax(axis=1)), 1)
    np.fill_diagonal(matrix, 0)
    assert tally.confusion() == ()
    found = tally.confused()
    assert sorted(found) == [(*pair, matrix[tuple(pair)]) for pair in np.argwhere(matrix).tolist()]
    assert [-times for _, _, times in found] == sorted(-times for _, _, times in found)


def test_the_figures_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]], np.float32))
    tally = tallied((logits, np.array([0, 0, 1, 1])))
    figures = tally.figures()
    assert (figures.examples, figures.correct) == (4, 2)
    assert figures.metrics.keys() == {"loss", "top1", "calibration_error"}
    assert figures.metrics["top1"].value == 0.5
    expected_loss = -math.fsum(math.log(p) for p in (0.5, 0.1, 0.7, 0.3)) / 4
    assert figures.metrics["loss"].value == pytest.approx(expected_loss, rel=1e-6)  # the logits are float32
    # Confidences 0.5 and 0.7 were right, 0.8 and 0.6 wrong, each in a bin of its own.
    assert figures.metrics["calibration_error"].value == pytest.approx((0.5 + 0.3 + 0.8 + 0.6) / 4, rel=1e-6)
    assert tally.confusion() == ((1, 0, 1), (1, 1, 0), (0, 0, 0))
    worst, other = tally.mistakes()
    assert (worst.record, worst.label, worst.prediction) == (1, 0, 2)
    assert (worst.confidence, worst.label_probability) == pytest.approx((0.8, 0.1), rel=1e-6)
    assert other.record == 3


def test_classes_by_hand() -> None:
    logits = np.eye(3, dtype=np.float32)[[0, 2, 1, 0]]
    first, second, third = tallied((logits, np.array([0, 0, 1, 1]))).per_class(["a", "b", "c"])
    assert (first.name, first.examples, first.correct, first.predicted) == ("a", 2, 1, 2)
    assert (second.examples, second.correct, second.predicted) == (2, 1, 1)
    assert (third.examples, third.predicted) == (0, 1)
    assert (third.accuracy.value, third.accuracy.low, third.accuracy.high) == (0, 0, 1)


def test_calibration_bins_are_closed_above() -> None:
    # Three equal logits give exactly 1/3 = 5/15, which belongs to (4/15, 5/15]; the other example has nearly 1.
    logits = np.array([[0, 0, 0], [0, 30, 0], [0, 0, 0]], np.float32)
    bins = tallied((logits, np.array([0, 0, 2]))).guesses().calibration()
    assert [found.examples for found in bins] == [0] * 4 + [2] + [0] * 9 + [1]
    assert (bins[4].confidence, bins[4].accuracy) == (1 / 3, 0.5)
    assert (bins[14].accuracy, bins[0].accuracy, bins[0].confidence) == (0, 0, 0)
    assert (bins[0].low, bins[4].high, bins[14].high) == (0, 5 / 15, 1)


def test_logits_that_are_not_finite_and_a_label_that_is_no_class_name_the_record() -> None:
    logits, labels = examples(10, 3)
    logits[6, 1] = np.inf
    with pytest.raises(DivergenceError, match="record 6: the model's logits are not finite"):
        tallied((logits, labels), 4, 4, 2)
    for label in (-1, 3):
        logits, labels = examples(10, 3)
        labels[9] = label
        with pytest.raises(ArtifactError, match=f"record 9: label {label} vs 3 classes"):
            tallied((logits, labels), 4, 4, 2)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logits of shape \(4, 3\) vs 4 labels of 5 classes"):
        ClassificationTally(5).add(*examples(4, 3))
    with pytest.raises(ValueError, match="no examples were judged"):
        ClassificationTally(5).figures()
