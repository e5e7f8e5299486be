from __future__ import annotations

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation

from podline.kinds.pose.images import by_image, ranked
from podline.kinds.pose.oks import at_threshold, judged
from podline.kinds.pose.ranked_images import ImageFigures

POSE = np.full((17, 3), 2) + np.arange(17)[:, None] * [6, 9, 0]


def result(image, shift=0.0, score=0.9):
    keypoints = POSE.astype(float) + np.array([shift, 0, 0])
    return {"image_id": image, "category_id": 1, "keypoints": keypoints.ravel().tolist(), "score": score}


def evaluation(results, *more):
    truth = {
        "images": [{"id": number} for number in (3, 1, 2, 9)],
        "annotations": [*(annotation(number, number, POSE) for number in (1, 2, 3)), *more],
        "categories": CATEGORIES,
    }
    return judged(truth, results)


def test_quality_by_image():
    found = [result(1), result(2, shift=8), result(2, shift=900, score=0.8), result(2, shift=900, score=0.1)]
    first, second, third = by_image(evaluation(found), threshold=0.5)
    assert (first.image_id, first.people, first.found, first.false_alarms) == (1, 1, 1, 0)
    assert first.quality == pytest.approx(1)
    assert (second.image_id, second.people, second.found, second.false_alarms) == (2, 1, 1, 1)
    assert 0.25 < second.quality < 0.5
    assert (third.image_id, third.found, third.quality) == (3, 0, 0)
    assert [image.quality for image in by_image(evaluation([]), 0.5)] == [0, 0, 0]


def test_people_who_do_not_count_and_those_who_find_them():
    crowd = annotation(7, 9, np.zeros((17, 3), int), iscrowd=1, bbox=[0, 0, 400, 400], area=90_000.0)
    assert [image.image_id for image in by_image(evaluation([result(9)], crowd), 0.5)] == [1, 2, 3]
    in_image_3 = {**crowd, "image_id": 3}
    figures = by_image(evaluation([result(3), result(3, shift=120, score=0.8)], in_image_3), 0.5)[2]
    assert (figures.people, figures.found, figures.false_alarms) == (1, 1, 0)


def images(*qualities):
    return [
        ImageFigures(image_id=number, people=1, found=0, false_alarms=0, quality=quality)
        for number, quality in enumerate(qualities)
    ]


def test_best_median_and_worst_are_different_images():
    chosen = ranked(images(0.5, 0.9, 0.1, 0.7, 0.3, 0.8, 0.2), shown=2)
    assert [image.quality for image in chosen.best] == [0.9, 0.8]
    assert [image.quality for image in chosen.worst] == [0.1, 0.2]
    assert [image.quality for image in chosen.median] == [0.7, 0.5]
    few = ranked(images(0.5, 0.4), shown=3)
    assert [[image.quality for image in part] for part in (few.best, few.median, few.worst)] == [[0.5], [], [0.4]]
    assert ranked([]).best == ()


def test_results_below_a_threshold_do_not_count():
    found = [result(1), result(2, score=0.4), result(2, shift=900, score=0.6), result(3, shift=900, score=0.2)]
    all_of_them, without = (at_threshold(evaluation(found), score) for score in (0.0, 0.5))
    assert (all_of_them.kept, all_of_them.right, all_of_them.people) == (4, 2, 3)
    assert (without.kept, without.right, without.people) == (2, 1, 3)
    assert (without.precision, without.recall) == (0.5, pytest.approx(1 / 3))
    nothing = at_threshold(evaluation([]), 0.5)
    assert (nothing.precision, nothing.recall) == (0, 0)
