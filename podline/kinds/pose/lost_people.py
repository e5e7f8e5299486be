"""Lists people that one pose network detects and another misses, and draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.data.reader import SplitReader
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.coco_results import Results
from podline.kinds.pose.judged_pictures import Scene, records_of, scene
from podline.kinds.pose.oks import CloseJoints, close_joints, people_in
from podline.kinds.pose.skeletons import Image, with_skeletons

# Size of pictures, and of the frames and rings around losses, in pixels.
_LONGER_SIDE, _LINE, _RADIUS = 480, 2, 11
_LOST = (224, 62, 45)


@dataclass(frozen=True)
class FoundPair:
    """The people that two pose networks detect in the same images.

    Attributes:
        before: the evaluation of the first network's people.
        after: the evaluation of the second network's people.
        skeleton: the skeleton of the people.
    """

    before: COCOeval
    after: COCOeval
    skeleton: Skeleton

    @cached_property
    def people(self) -> tuple[dict[int, CloseJoints], dict[int, CloseJoints]]:
        """Each network's close joints, by the annotated person's number in the truth, from 1."""
        return close_joints(self.before), close_joints(self.after)


class FoundPeople(NamedTuple):
    """The number of people of an image that a network finds at OKS 0.5, and the number of close joints."""

    people: int
    joints: int


class LostImage(NamedTuple):
    """An image with lost people or joints.

    Attributes:
        image_id: COCO's image id.
        record: position of the image's record in the split.
        there: number of annotated people, and of their labelled joints.
        before: people and joints that the first network finds.
        after: people and joints that the second network finds.
        lost: numbers, in the truth, of people that only the first network finds.
    """

    image_id: int
    record: int
    there: FoundPeople
    before: FoundPeople
    after: FoundPeople
    lost: tuple[int, ...]


class LostPeople(NamedTuple):
    """The people and joints that the second network lost or gained.

    Attributes:
        lost: number of people that only the first network finds, at OKS 0.5.
        gained: number of people that only the second network finds.
        images: images in which the second network has fewer close joints, largest loss first.
    """

    lost: int
    gained: int
    images: tuple[LostImage, ...]


def lost_people(pair: FoundPair, reader: SplitReader) -> LostPeople:
    """Return the people that only one of the networks finds, and the images with lost joints."""
    before, after = pair.people
    records, images = records_of(reader), dict[int, list[int]]()
    for person, now in after.items():
        images.setdefault(now.image_id, []).append(person)
    found = [
        _lost_image(records[image], [(each, before[each], after[each]) for each in who])
        for image, who in images.items()
    ]
    worse = [image for image in found if image.after.joints < image.before.joints]
    return LostPeople(
        lost=sum(len(image.lost) for image in found),
        gained=sum(before[person].result is None and now.result is not None for person, now in after.items()),
        images=tuple(sorted(worse, key=lambda image: (image.after.joints - image.before.joints, image.image_id))),
    )


def _lost_image(record: int, people: Sequence[tuple[int, CloseJoints, CloseJoints]]) -> LostImage:
    """Describe an image by its people: number in the truth, joints of the first and of the second network."""

    def found(sides: Sequence[CloseJoints]) -> FoundPeople:
        return FoundPeople(sum(side.result is not None for side in sides), sum(int(side.close.sum()) for side in sides))

    now = [after for _, _, after in people]
    return LostImage(
        image_id=now[0].image_id,
        record=record,
        there=FoundPeople(len(people), sum(int(side.labelled.sum()) for side in now)),
        before=found([before for _, before, _ in people]),
        after=found(now),
        lost=tuple(each for each, before, after in people if before.result is not None and after.result is None),
    )


def drawn(image: LostImage, pair: FoundPair, reader: SplitReader, thresholds: Sequence[float]) -> tuple[Image, Image]:
    """Draw an image twice, with the people of each network, and mark people and joints that only the first finds.

    A frame marks a lost person. A ring around the labelled joint marks a lost joint of a person that both find.

    Args:
        image: the image.
        pair: the two networks.
        reader: the reader of the split.
        thresholds: each network's least score of people to draw; people that match an annotation are always drawn.
    """
    there, truth = scene(reader, image.record, pair.skeleton), people_in(pair.after)
    scale = _LONGER_SIDE / max(there.image.shape[:2])
    boxes = there.boxes([truth[person]["bbox"] for person in image.lost]) * scale
    rings = (_lost_joints(image, pair, there) + 0.5) * scale - 0.5
    pictures = list[Image]()
    for judged, people, threshold in zip((pair.before, pair.after), pair.people, thresholds, strict=True):
        found = _shown(judged, image.image_id, people, threshold)
        picture = with_skeletons(there.image, there.poses(found), pair.skeleton, scale)
        pictures.append(_marked(picture, boxes, rings))
    return pictures[0], pictures[1]


def _shown(judged: COCOeval, image_id: int, people: dict[int, CloseJoints], threshold: float) -> Results:
    """Return an image's results that reach the threshold or match an annotated person, highest score first."""
    right = {person.result for person in people.values()}
    found: Any = judged.cocoDt.imgToAnns[image_id]
    results = sorted(found, key=lambda result: -result["score"])
    return [result for result in results if result["score"] >= threshold or result["id"] in right]


def _lost_joints(image: LostImage, pair: FoundPair, there: Scene) -> npt.NDArray[np.floating]:
    """Return the labelled positions of lost joints in people that both networks find: (n, 2), pixels of the picture."""
    (before, after), truth = pair.people, people_in(pair.after)
    found: list[npt.NDArray[np.floating]] = [np.empty((0, 2))]
    for person, now in after.items():
        if now.image_id == image.image_id and person not in image.lost:
            places = np.reshape(truth[person]["keypoints"], (-1, 3))[:, :2]
            found.append(there.joints(places[before[person].close & ~now.close]))
    return np.concatenate(found)


def _marked(picture: Image, boxes: npt.NDArray[np.floating], rings: npt.NDArray[np.floating]) -> Image:
    for left, top, width, height in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(picture, (left, top), (left + width, top + height), _LOST, _LINE)
    for x, y in np.rint(rings).astype(int).tolist():
        cv2.circle(picture, (x, y), _RADIUS, _LOST, _LINE, cv2.LINE_AA)
    return picture
