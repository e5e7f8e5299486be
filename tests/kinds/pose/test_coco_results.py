from __future__ import annotations

import json

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation

from podline.data.coco_letterbox import LetterBox
from podline.documents.skeleton import COCO
from podline.errors import SourceError
from podline.kinds.pose.coco_results import check_results, people_to_results, read_truth
from podline.kinds.pose.decoding import People

GOOD = {"image_id": 1, "category_id": 1, "keypoints": [1] * 51, "score": 0.5}
PERSON = annotation(3, 1, np.full((17, 3), 2))


def truth_with(**changes):
    return {"images": [{"id": 1}], "annotations": [PERSON | changes], "categories": CATEGORIES}


def test_people_become_results_in_the_images_own_pixels():
    letterbox = LetterBox(736, 368, 368)  # halved, 92 rows above
    poses = np.zeros((1, 18, 3), np.float32)
    poses[0, COCO.index["neck"]] = 1, 1, 1
    poses[0, COCO.index["left_wrist"]] = 99.5, 191.5, 0.75
    (result,) = people_to_results(People(poses, np.array([0.25], np.float32)), 42, letterbox, COCO)
    assert (result["image_id"], result["category_id"], result["score"]) == (42, 1, 0.25)
    keypoints = np.reshape(result["keypoints"], (17, 3))
    assert keypoints[COCO.annotated.index("left_wrist")].tolist() == [199.5, 199.5, 0.75]
    assert np.count_nonzero(keypoints) == 3
    assert json.loads(json.dumps(result)) == result
    nobody = People(np.zeros((0, 18, 3), np.float32), np.zeros(0, np.float32))
    assert people_to_results(nobody, 1, letterbox, COCO) == []


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"results": []}, "a list is needed, found dict"),
        ([GOOD, 7], "result 1: an object is needed, found int"),
        ([GOOD | {"image_id": "1"}], "result 0: image_id is '1', an integer is needed"),
        ([GOOD, GOOD | {"keypoints": [1] * 50}], "result 1: keypoints: 50 values, 51 numbers are needed"),
        ([GOOD | {"keypoints": [1] * 50 + [float("nan")]}], "result 0: keypoints: nan is not a finite number"),
        ([GOOD | {"score": "high"}], "result 0: score: 'high' is not a finite number"),
        ([GOOD | {"bbox": [1, 2, 3, 4]}, GOOD], "result 1: bbox .*NoneType, 4 numbers are needed"),
    ],
)
def test_results_that_cannot_be_are_refused_by_name(results, message):
    with pytest.raises(SourceError, match=f"^people: .*{message}") as caught:
        check_results(results, "people", 17)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([], "not COCO annotations"),
        (truth_with(keypoints=[0] * 48), "annotation 3: keypoints: 48 values, 51 numbers are needed"),
        (truth_with(bbox=[0, 0, float("nan"), 1]), "annotation 3: bbox: nan is not a finite number"),
        (truth_with(num_keypoints=None), "annotation 0: num_keypoints is None, an integer is needed"),
    ],
)
def test_truth_that_cannot_be_is_refused_by_name(truth, message, tmp_path):
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(truth))
    with pytest.raises(SourceError, match=message) as caught:
        read_truth(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_not_json(tmp_path):
    with pytest.raises(SourceError, match=r"none\.json: cannot be read: No such file"):
        read_truth(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('[{"image_id": 1')
    with pytest.raises(SourceError, match=r"cut\.json: not JSON: "):
        read_truth(tmp_path / "cut.json")
