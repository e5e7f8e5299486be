"""AP, F1, thresholds and intervals of yes-or-no answers, against their definitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from podline.kinds.labels.precision import average_precision, best_threshold, f1, mean_of

Answers = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]


def answers(seed: int, images: int = 60) -> Answers:
    """Labels and scores that have to do with them; of every other seed with many ties."""
    random = np.random.default_rng(seed)
    labels = random.random(images) < random.uniform(0.05, 0.9)
    labels[0] = True
    scores = (random.normal(size=images) + labels).astype(np.float32)
    return labels, np.round(scores, 1) if seed % 2 else scores


def sum_over_thresholds(labels: npt.NDArray[np.bool_], scores: npt.NDArray[np.float32], weights: object = 1.0) -> float:
    """The definition: the sum over thresholds of the rise in recall times the precision."""
    weighed, recall, found = np.ones(len(labels)) * weights, 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        named = scores >= threshold
        right = (weighed * (named & labels)).sum()
        rise, recall = right / (weighed * labels).sum() - recall, right / (weighed * labels).sum()
        found += rise * right / (weighed * named).sum()
    return float(found)


def f1_of(labels: npt.NDArray[np.bool_], named: npt.NDArray[np.bool_], weights: object = 1.0) -> float:
    """The harmonic mean of precision and recall."""
    weighed = np.ones(len(labels)) * weights
    precision, recall = ((weighed * (named & labels)).sum() / (weighed * each).sum() for each in (named, labels))
    return float(2 * precision * recall / (precision + recall))


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_is_the_sum_over_thresholds(seed: int) -> None:
    labels, scores = answers(seed)
    assert average_precision(labels, scores).value == pytest.approx(sum_over_thresholds(labels, scores), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_an_influence_is_what_a_weight_does(seed: int) -> None:
    labels, scores = answers(seed)
    named, more = scores > 0.4, 1e-6
    for image in range(0, len(labels), 7):
        weights = np.ones(len(labels))
        weights[image] += more
        for found, of, told in (
            (average_precision(labels, scores), sum_over_thresholds, scores),
            (f1(labels, named), f1_of, named),
        ):
            rise = of(labels, told, weights) - of(labels, told)  # type: ignore[operator]
            assert found.influence[image] == pytest.approx(rise / more, abs=1e-5)


def test_f1_over_several_labels_counts_all_answers() -> None:
    labels, named = (np.random.default_rng(seed).random((50, 4)) < 0.3 for seed in (1, 2))
    found = f1(labels, named)
    assert found.value == pytest.approx(f1_of(labels.ravel(), named.ravel()))
    assert found.influence.shape == (50,)
    assert found.influence.sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_has_a_higher_f1(seed: int) -> None:
    labels, scores = answers(seed)
    best = best_threshold(labels, scores)
    highest = max(f1(labels, scores >= each).value for each in scores)
    assert f1(labels, scores >= best).value == pytest.approx(highest)
    assert best not in scores or best == scores.min(), "a threshold lies between scores"


def test_intervals_hold_the_true_figure() -> None:
    # Of 300 images 60 are positives, whose scores lie 1.5 deviations above the others': AP 0.64 in a million.
    random, held = np.random.default_rng(0), 0
    labels = random.random(1_000_000) < 0.2
    true = average_precision(labels, random.normal(size=len(labels)) + 1.5 * labels).value
    for _ in range(200):
        labels = random.random(300) < 0.2
        metric = average_precision(labels, random.normal(size=300) + 1.5 * labels).metric()
        held += metric.low <= true <= metric.high
    assert 0.90 <= held / 200 <= 0.99


def test_a_perfect_figure_has_the_interval_of_its_positives() -> None:
    labels = np.array([1, 1, 1, 0, 0], bool)
    metric = average_precision(labels, labels * 1.0).metric()
    assert (metric.value, metric.high) == (1.0, 1.0)
    assert metric.low == pytest.approx(0.4385, abs=1e-4), "Wilson's of 3 of 3"


def test_the_mean_of_figures_has_their_mean_influence() -> None:
    several = [average_precision(*answers(seed)) for seed in range(3)]
    mean = mean_of(several)
    assert mean.value == pytest.approx(np.mean([each.value for each in several]))
    assert mean.variance < max(each.variance for each in several)
