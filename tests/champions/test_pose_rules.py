"""The rules on pose networks that are made up: what is equal passes, what fell is refused, and the joint is named."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from finished_pose_run import finished_pose_run
from pycocotools.cocoeval import COCOeval

from podline.base.progress import silent
from podline.champions.rules import checks_of
from podline.compare import comparison
from podline.compare.known import evaluated
from podline.contract.answers import CommonExamples
from podline.contract.rules import Compared, ModelCost
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.documents.skeleton import COCO
from podline.kinds.pose.answers import PoseAnswers
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.oks import judged
from podline.recipes.kind_table import read_evaluation
from podline.recipes.promotion_settings import PromotionSettings
from podline.store.opening import open_store

IMAGES = range(1, 121)
RULES = PromotionSettings()
SAME = (ModelCost(1000, 1000), ModelCost(1000, 1000))


def keypoints(image: int) -> list[float]:
    """One person's, all labelled."""
    return [value for joint in range(17) for value in (20.0 + joint * 5 + image % 3, 30.0 + joint * 4, 2)]


TRUTH: dict[str, Any] = {
    "images": [{"id": image, "file_name": f"{image}.jpg", "width": 200, "height": 200} for image in IMAGES],
    "annotations": [
        {"id": image, "image_id": image, "category_id": 1, "keypoints": keypoints(image), "num_keypoints": 17}
        | {"area": 8000.0, "bbox": [20, 30, 90, 70], "iscrowd": 0}
        for image in IMAGES
    ],
    "categories": [{"id": 1, "name": "person", "supercategory": "person", "keypoints": [], "skeleton": []}],
}


@functools.cache
def network(found: Sequence[int] = IMAGES, astray: Sequence[int] = (), joints: tuple[str, ...] = ()) -> COCOeval:
    """Finds the people of some images, with some joints far from their places in some of them."""
    people = []
    for image in found:
        places = keypoints(image)
        for joint in joints if image in astray else ():
            places[3 * COCO.annotated.index(joint)] += 150.0
        people.append({"image_id": image, "category_id": 1, "keypoints": places, "score": 0.9})
    return judged(TRUTH, people)


WRISTS = ("left_wrist", "right_wrist")


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (IMAGES[:100], {"found": IMAGES[4:104]}, set()),
        # As where one side is labelled wrongly, and training mirrors images.
        (IMAGES, {"astray": IMAGES[:60], "joints": WRISTS}, {*WRISTS}),
        (IMAGES, {"found": IMAGES[:60]}, {"AP", *COCO.annotated}),
    ],
    ids=["other people, as many", "both of a kind went astray", "fewer people"],
)
def test_what_fell_is_refused_by_its_name(before: Sequence[int], after: dict[str, Any], refused: set[str]) -> None:
    found = checks_of(Compared("pose", [network(before)], network(**after), costs=SAME), RULES)
    assert {check.name for check in found if check.rule == "joint"} == set(COCO.annotated)
    assert {check.name for check in found if check.refused and (check.rule == "joint" or "AP" in refused)} == refused


# The last one: those before it draw as often as Podline does.
@pytest.mark.usefixtures("few_draws")
def test_a_network_on_some_images_is_judged_on_their_people_alone(tmp_path, monkeypatch) -> None:
    asked = finished_pose_run(tmp_path)
    store = open_store(asked.root)
    folder, split = asked.dataset_folder, asked.split
    manifest = read_manifest(store, folder)
    whole = CommonExamples(store, folder, manifest, split, silent())
    answers = PoseAnswers()
    document = read_evaluation(store, asked.folder)
    assert isinstance(document, PoseEvaluation)
    left = answers.left(store, asked.folder, document)
    assert answers.part(whole, left) == left
    assert answers.main(whole, left) == document.trained.metrics["ap"]
    places = np.array([2, 0])
    some = replace(whole, places=places)
    images = {*open_split(store, folder, manifest, split).gather(places, ["image_id"])["image_id"].flat}
    assert {person["image_id"] for person in answers.part(some, left)} <= images
    run = evaluated(store, asked.run)
    monkeypatch.setattr(comparison, "examples_of", lambda *_: comparison.Grounds(some))
    assert comparison.compare(store, run, run, silent()).comparison.difference.examples == len(places)
    said = answers.judged(some, answers.part(some, left))
    main, *fixed = checks_of(Compared("pose", [said], said, costs=SAME), RULES)
    assert (main.rule, main.before) == ("main", main.after)
    assert [check.rule for check in fixed] == ["size", "operations"], "no joint has 50 examples"
