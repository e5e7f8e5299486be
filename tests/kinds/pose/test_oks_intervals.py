from __future__ import annotations

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation, random_results, random_truth

from podline.kinds.pose import oks_intervals
from podline.kinds.pose.oks import OksFigures, evaluate_results, judged
from podline.kinds.pose.oks_intervals import figures_within


def undrawn(monkeypatch, evaluation):
    """The figures of a draw that is every image once."""
    monkeypatch.setattr(oks_intervals.np.random, "default_rng", lambda _seed: EveryImageOnce())
    return figures_within(evaluation, draws=1)


class EveryImageOnce:
    def integers(self, images, size):
        assert images == size
        return np.arange(size)


@pytest.mark.parametrize("seed", range(3))
def test_a_draw_of_every_image_once_has_pycocotools_figures(seed, monkeypatch):
    truth = random_truth(seed, images=12)
    evaluation = judged(truth, random_results(truth, seed))
    metrics = undrawn(monkeypatch, evaluation)
    figures = dict(zip(OksFigures.model_fields, evaluation.stats.tolist(), strict=True))
    assert set(metrics) == {name for name, value in figures.items() if value >= 0}
    assert len(metrics) >= 8
    for name, metric in metrics.items():
        assert metric.value == figures[name]
        assert metric.low == metric.high == pytest.approx(metric.value, abs=1e-12)


def test_an_image_drawn_twice_counts_like_two_of_its_kind(monkeypatch):
    truth = random_truth(4, images=4)
    results = random_results(truth, 4)
    for place, found in enumerate(results):  # copies stand next to each other in the order of scores
        found["score"] = 1 - place / 1000
    twice = dict(truth)
    for field, moved in (("images", ("id",)), ("annotations", ("id", "image_id"))):
        twice[field] = truth[field] + [each | {key: each[key] + 1000 for key in moved} for each in truth[field]]
    copies = results + [found | {"image_id": found["image_id"] + 1000} for found in results]
    expected = evaluate_results(twice, copies).figures.ap
    metrics = undrawn(monkeypatch, judged(twice, copies))
    assert metrics["ap"].low == pytest.approx(expected, abs=1e-12)
    assert metrics["ap"].low == pytest.approx(evaluate_results(truth, results).figures.ap, abs=1e-9)


def test_intervals_hold_the_figure_and_narrow_with_more_images():
    truths = [random_truth(1, images=images) for images in (160, 10)]
    narrow, wide = (figures_within(judged(truth, random_results(truth, 1)), draws=200)["ap"] for truth in truths)
    for metric in (narrow, wide):
        assert metric.low <= metric.value <= metric.high
    assert 0 < narrow.high - narrow.low < 0.6 * (wide.high - wide.low)


def test_no_results_are_zero_within_zero_and_nobody_is_no_figure():
    person = annotation(1, 7, np.full((17, 3), 2) + np.arange(17)[:, None] * [6, 6, 0])
    truth = {"images": [{"id": 7}], "annotations": [person], "categories": CATEGORIES}
    metrics = figures_within(judged(truth, []), draws=10)
    assert (metrics["ap"].value, metrics["ap"].low, metrics["ap"].high) == (0, 0, 0)
    assert "ap_large" not in metrics
    assert figures_within(judged({**truth, "annotations": []}, []), draws=10) == {}
    assert figures_within(judged({**truth, "annotations": [], "images": []}, []), draws=10) == {}
