from __future__ import annotations

import json

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation

from podline.documents.skeleton import COCO
from podline.errors import SourceError
from podline.evaluation.coco_results import read_truth
from podline.evaluation.decoding_ceiling import ROOTS, decoding_ceiling
from podline.evaluation.decoding_ceiling import ceiling as ceiling_stage
from podline.progress import Reporter, silent
from podline.recipes.pose_settings import DecodingSettings, PoseTargetSettings
from podline.stages.tools import CeilingSpec, DecodingCeiling

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


def ceiling(*people, side=368):
    truth = {
        "images": [{"id": 1, "width": 368, "height": 300}],
        "annotations": [annotation(number + 1, 1, keypoints) for number, keypoints in enumerate(people)],
        "categories": CATEGORIES,
    }
    return decoding_ceiling(truth, side, PoseTargetSettings(), DecodingSettings())


def test_people_apart_are_decoded_exactly():
    made = ceiling(standing(), standing((180, 60)))
    assert made.total.people == 2
    assert made.total.ap == pytest.approx(1)
    assert made.total.oks == pytest.approx(1, abs=1e-3)
    assert sum(row.people for row in made.by_size) == 2
    assert [row.low for row in made.by_size] == list(ROOTS[:-1])


def test_joints_of_two_people_in_one_place_are_merged():
    wrist = COCO.annotated.index("right_wrist")
    neighbour = standing((100, 0))
    neighbour[wrist, :2] = standing()[wrist, :2]
    made = ceiling(standing(), neighbour)
    # One of the two people has the peak, the other one of 17 joints less.
    assert made.total.merged == pytest.approx(1 / 17 / 2, abs=1e-3)
    assert made.total.detached == 0
    assert made.total.oks == pytest.approx(1 - made.total.merged, abs=1e-3)


def test_a_joint_joined_to_nothing_and_far_away_is_detached():
    alone = standing(without=["left_elbow"])
    alone[COCO.annotated.index("left_wrist"), :2] = 330, 96
    made = ceiling(alone)
    assert made.total.detached == pytest.approx(1 / 16, abs=1e-3)
    assert made.total.oks == pytest.approx(1 - 1 / 16, abs=1e-3)
    assert made.total.merged == 0
    assert made.total.inexact == pytest.approx(0, abs=1e-3)


def test_small_people_and_those_with_few_joints_do_not_count():
    few = standing((180, 0), without=COCO.annotated[4:])
    small = standing((180, 150), scale=0.2)
    assert ceiling(standing(), few, small).total.people == 1
    nobody = ceiling(few, small)
    assert (nobody.total.people, nobody.total.ap, nobody.total.oks) == (0, -1, 0)


@pytest.mark.slow
def test_real_people(real_data):
    """The bar for the decoder: AP of at least 0.90 from targets made of the truth, at the default settings."""
    path = real_data / "coco" / "annotations" / "person_keypoints_train2017.json"
    if not path.is_file():
        pytest.skip(f"no COCO annotations at {path}")
    made = decoding_ceiling(read_truth(path), 368, PoseTargetSettings(), DecodingSettings())
    for row in (made.total, *made.by_size):
        print(  # noqa: T201 (the table is the test's other product: pytest -s shows it)
            f"{row.low:6.0f} {row.high:6.0f} people {row.people:4d} AP {row.ap:6.3f} OKS {row.oks:.4f}"
            f" merged {row.merged:.4f} detached {row.detached:.4f} inexact {row.inexact:.4f}"
        )
    assert made.total.people > 0
    assert made.total.ap >= 0.90


def annotations(path, first=1, people=2):
    truth = {
        "images": [{"id": first, "width": 368, "height": 300}],
        "annotations": [annotation(first + n, first, standing((150 * n, 20))) for n in range(people)],
        "categories": CATEGORIES,
    }
    path.write_text(json.dumps(truth))
    return str(path)


def spec(*truths):
    return CeilingSpec(root=".", truths=truths, side=368, targets=PoseTargetSettings(), decoding=DecodingSettings())


def test_several_files_are_one_truth(tmp_path):
    told = []
    files = annotations(tmp_path / "a.json"), annotations(tmp_path / "b.json", first=10)
    found = ceiling_stage(spec(*files), Reporter("ceiling", lambda event: told.append((event["done"], event["total"]))))
    assert found.total.people == 4
    assert found.total.ap == pytest.approx(1)
    assert told == [(2, 2)]
    lines = found.lines()
    assert lines[-6].split()[:2] == ["all", "4"]
    assert "–" in lines[1]
    assert DecodingCeiling.model_validate_json(found.model_dump_json()) == found


def test_files_that_share_ids_are_refused(tmp_path):
    files = annotations(tmp_path / "a.json"), annotations(tmp_path / "b.json", first=2)
    with pytest.raises(SourceError, match=r"a\.json and .*b\.json: annotations share ids"):
        ceiling_stage(spec(*files), silent())
