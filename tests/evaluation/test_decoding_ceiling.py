from __future__ import annotations

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation

from benchmarks.decoding_ceiling import ROOTS, decoding_ceiling
from podline.documents.skeleton import COCO
from podline.kinds.pose.coco_results import read_truth
from podline.recipes.pose_settings import DecodingSettings, PoseTargetSettings

STANDING = np.array(
    [
        (92, 30), (100, 24), (84, 24), (108, 28), (76, 28), (114, 52), (70, 52), (124, 74), (60, 74), (130, 96),
        (54, 96), (106, 98), (78, 98), (108, 128), (76, 128), (110, 156), (74, 156),
    ]
)  # fmt: skip


def standing(shift=(0, 0), scale=1.0, without=()):
    keypoints = np.full((17, 3), 2)
    keypoints[:, :2] = np.rint(STANDING * scale + shift)
    keypoints[[COCO.annotated.index(name) for name in without]] = 0
    return keypoints


def table(*people):
    truth = {
        "images": [{"id": 1, "width": 368, "height": 300}],
        "annotations": [annotation(number + 1, 1, keypoints) for number, keypoints in enumerate(people)],
        "categories": CATEGORIES,
    }
    return decoding_ceiling(truth, 368, PoseTargetSettings(), DecodingSettings())


def ceiling(*people):
    return table(*people)[-1]


def test_people_apart_are_decoded_exactly():
    *by_size, total = table(standing(), standing((180, 60)))
    assert total.people == 2
    assert total.ap == pytest.approx(1)
    assert total.oks == pytest.approx(1, abs=1e-3)
    assert sum(row.people for row in by_size) == 2
    assert [row.low for row in by_size] == list(ROOTS[:-1])
    assert total.cells()[1:4] == ["2", "1.000", "1.000"]


def test_joints_of_two_people_in_one_place_are_merged():
    wrist = COCO.annotated.index("right_wrist")
    neighbour = standing((100, 0))
    neighbour[wrist, :2] = standing()[wrist, :2]
    made = ceiling(standing(), neighbour)
    # One of the two people has the peak, the other one of 17 joints less.
    assert made.merged == pytest.approx(1 / 17 / 2, abs=1e-3)
    assert made.detached == 0
    assert made.oks == pytest.approx(1 - made.merged, abs=1e-3)


def test_a_joint_joined_to_nothing_and_far_away_is_detached():
    alone = standing(without=["left_elbow"])
    alone[COCO.annotated.index("left_wrist"), :2] = 330, 96
    made = ceiling(alone)
    assert made.detached == pytest.approx(1 / 16, abs=1e-3)
    assert made.oks == pytest.approx(1 - 1 / 16, abs=1e-3)
    assert made.merged == 0
    assert made.inexact == pytest.approx(0, abs=1e-3)


def test_small_people_and_those_with_few_joints_do_not_count():
    few = standing((180, 0), without=COCO.annotated[4:])
    small = standing((180, 150), scale=0.2)
    assert ceiling(standing(), few, small).people == 1
    nobody = ceiling(few, small)
    assert (nobody.people, nobody.ap, nobody.oks) == (0, -1, 0)


@pytest.mark.slow
def test_real_people(real_data):
    """The bar for the decoder: AP of at least 0.90 from targets made of the truth, at the default settings."""
    path = real_data / "coco" / "annotations" / "person_keypoints_train2017.json"
    if not path.is_file():
        pytest.skip(f"no COCO annotations at {path}")
    *_, total = decoding_ceiling(read_truth(path), 368, PoseTargetSettings(), DecodingSettings())
    assert total.people > 0
    assert total.ap >= 0.90
