"""Lists and draws the images in which one pose network finds fewer joints than another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from pycocotools.cocoeval import COCOeval

from podline.base.arrays import Floats, Image
from podline.base.plurals import plural
from podline.contract.answers import LostExample, LostExamples
from podline.contract.rules import Compared
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.pose.coco_results import Results
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.judged_pictures import Scene, records_of, scene
from podline.kinds.pose.oks import CloseJoints, close_joints, people_in
from podline.kinds.pose.skeletons import with_skeletons

MOST_IMAGES = 8
"""The largest number of images that are listed and shown."""
LOST = (224, 62, 45)
"""The RGB colour of frames and rings around lost people and joints."""
# Size of pictures, and of frames and rings, in pixels.
_LONGER_SIDE, _LINE, _RADIUS = 480, 2, 11


class _Detected(NamedTuple):
    """The people that a network detects.

    Attributes:
        evaluation: their evaluation.
        joints: the close joints of each annotated person, by the person's number in the truth, from 1.
        threshold: the least score of results to draw.
    """

    evaluation: COCOeval
    joints: dict[int, CloseJoints]
    threshold: float

    def finds(self, person: int) -> bool:
        """Return whether the network finds a person at OKS 0.5."""
        return self.joints[person].result is not None

    def close(self, people: Sequence[int]) -> int:
        """Return the number of these people's joints that the network predicts closely."""
        return sum(int(self.joints[person].close.sum()) for person in people)

    def counts(self, people: Sequence[int]) -> str:
        """Return as text how many of these people, and of their labelled joints, the network finds."""
        labelled = sum(int(self.joints[person].labelled.sum()) for person in people)
        instances, joints = plural(len(people), "instance"), plural(labelled, "joint")
        return f"{sum(map(self.finds, people))} of {instances}, {self.close(people)} of {joints}"

    def drawn_results(self, image_id: int) -> Results:
        """Return an image's results that reach the threshold or match an annotated person, highest score first."""
        right = {person.result for person in self.joints.values()}
        found: Any = self.evaluation.cocoDt.imgToAnns[image_id]
        results = sorted(found, key=lambda result: -result["score"])
        return [result for result in results if result["score"] >= self.threshold or result["id"] in right]


def lost_examples(
    compared: Compared[Any], reader: SplitReader, manifest: Manifest, before: PoseEvaluation, after: PoseEvaluation
) -> LostExamples:
    """Return images in which the network of ``after`` finds fewer joints than that of ``before``, worst first.

    The number of lost examples is the number of people that only the network of ``before`` finds; the number of gained
    examples is the number of people that only the network of ``after`` finds.
    """
    evaluations = zip((compared.known[0], compared.candidate), (before, after), strict=True)
    was, now = (_Detected(found, close_joints(found), each.score_threshold) for found, each in evaluations)
    people, records = dict[int, list[int]](), records_of(reader)
    for person, joints in now.joints.items():
        people.setdefault(joints.image_id, []).append(person)
    change = {image: now.close(each) - was.close(each) for image, each in people.items()}
    worse = [image for image in people if change[image] < 0]
    shown = sorted(worse, key=lambda image: (change[image], image))[:MOST_IMAGES]
    return LostExamples(
        sum(was.finds(person) and not now.finds(person) for person in now.joints),
        sum(now.finds(person) and not was.finds(person) for person in now.joints),
        [
            LostExample(
                record=records[image],
                name=f"image {image}",
                before=was.counts(people[image]),
                after=now.counts(people[image]),
            )
            for image in shown
        ],
        [_drawn(image, people[image], (was, now), scene(reader, records[image], manifest.skeleton)) for image in shown],
    )


def _drawn(
    image_id: int, people: Sequence[int], networks: tuple[_Detected, _Detected], there: Scene
) -> tuple[Image, Image]:
    """Draw an image twice, with the people of each network, and mark people and joints that only the first finds.

    A frame marks a lost person. A ring around the labelled joint marks a lost joint of any other person.
    """
    was, now = networks
    truth, scale = people_in(now.evaluation), _LONGER_SIDE / max(there.image.shape[:2])
    lost = [person for person in people if was.finds(person) and not now.finds(person)]
    boxes = there.boxes([truth[person]["bbox"] for person in lost]) * scale
    joints: list[Floats] = [np.empty((0, 2))]
    for person in people:
        if person not in lost:
            places = np.reshape(truth[person]["keypoints"], (-1, 3))[:, :2]
            joints.append(there.joints(places[was.joints[person].close & ~now.joints[person].close]))
    rings = (np.concatenate(joints) + 0.5) * scale - 0.5
    first, second = (
        with_skeletons(there.image, there.poses(each.drawn_results(image_id)), there.skeleton, scale)
        for each in networks
    )
    return _marked(first, boxes, rings), _marked(second, boxes, rings)


def _marked(picture: Image, boxes: Floats, rings: Floats) -> Image:
    for left, top, width, height in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(picture, (left, top), (left + width, top + height), LOST, _LINE)
    for x, y in np.rint(rings).astype(int).tolist():
        cv2.circle(picture, (x, y), _RADIUS, LOST, _LINE, cv2.LINE_AA)
    return picture
