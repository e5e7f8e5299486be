"""PCK beside an independent computation, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation, random_results, random_truth
from independent_pck import pck as independent

from podline.documents.skeleton import COCO
from podline.kinds.pose.oks import judged
from podline.kinds.pose.pck import pck

TORSO = ("left_shoulder", "right_hip")


def told(found):
    """All joints together and then each, as the independent computation has them."""
    return np.array(
        [[each.value, each.low, each.high] if each else [np.nan] * 3 for each in (found.whole, *found.joints)]
    )


@pytest.mark.parametrize("pair", [None, TORSO], ids=["box", "torso"])
@pytest.mark.parametrize("seed", range(4))
def test_pck_equals_an_independent_computation(seed, pair):
    truth, random = random_truth(seed, images=30), np.random.default_rng(seed)
    results = random_results(truth, seed)
    for result in results:
        pose = np.reshape(result["keypoints"], (-1, 3)) + random.normal(0, random.choice([0, 0, 30]), (17, 1))
        pose[random.random(17) < 0.2] = 0
        result["keypoints"] = pose.ravel().tolist()
    expected = independent(truth, results, pair and tuple(map(COCO.annotated.index, pair)), 1000)
    assert 0 < expected[0, 0] < expected[0, 2] < 1
    np.testing.assert_array_equal(told(pck(judged(truth, results), pair)), expected)


def person(number, image, length=100):
    joints = np.full((17, 3), 2) + np.arange(17)[:, None] * [7, 11, 0] + [100, 100, 0]
    joints[COCO.annotated.index("left_shoulder"), :2] = 100, 100
    joints[COCO.annotated.index("right_hip"), :2] = 100, 100 + length
    return annotation(number, image, joints)


def moved(of, by, score=0.5):
    joints = np.reshape(of["keypoints"], (-1, 3)) + np.array([by, 0, 0])
    return {"image_id": of["image_id"], "category_id": 1, "keypoints": joints.ravel().tolist(), "score": score}


def test_a_fifth_of_the_torso_is_close_and_instances_without_it_are_left_out():
    first, second, third = (person(image, image) for image in (1, 2, 3))
    third["keypoints"][3 * COCO.annotated.index("right_hip") + 2] = 0
    truth = {
        "images": [{"id": each} for each in (1, 2, 3)],
        "annotations": [first, second, third],
        "categories": CATEGORIES,
    }
    results = [moved(first, 20), moved(second, 20.001), moved(third, 0)]
    found = pck(judged(truth, results), TORSO)
    assert told(found)[:, 0].tolist() == [0.5] * 18
    without = {**truth, "annotations": [third]}
    nowhere = pck(judged(without, results), TORSO)
    assert nowhere.whole is None
    assert set(nowhere.joints) == {None}


def test_a_false_alarm_takes_no_instance_that_another_result_finds():
    right = person(1, 1)
    truth = {"images": [{"id": 1}], "annotations": [right], "categories": CATEGORIES}
    alarm, found = moved(right, 60, score=0.9), moved(right, 1, score=0.1)
    assert told(pck(judged(truth, [alarm, found]), TORSO))[0, 0] == 1
    # Two that AP does not count: the one that is surer is the answer.
    other = moved(right, 40, score=0.1)
    assert told(pck(judged(truth, [alarm, other]), TORSO))[0, 0] == 0
