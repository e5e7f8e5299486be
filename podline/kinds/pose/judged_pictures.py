"""Images of a pose evaluation, with the people found and the people annotated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox
from podline.data.reader import SplitReader, open_split
from podline.data.sources.coco_truth import read_truth
from podline.documents.completion import read_artifact
from podline.documents.manifest import Manifest
from podline.documents.skeleton import Skeleton
from podline.errors import ArtifactError
from podline.kinds.pose.coco_results import Results
from podline.kinds.pose.document import MAPS, SEEN, PoseEvaluation, people_name, read_people
from podline.kinds.pose.maps import PoseMaps, maps_from_bytes
from podline.kinds.pose.ranked_images import ImageFigures, Ranked
from podline.kinds.pose.skeletons import Image, poses_of
from podline.stages.specs import ReportSpec
from podline.store.contract import Store

TRAINING_SPLIT = "train"
Poses = npt.NDArray[np.float32]


class JudgedPicture(NamedTuple):
    """An image without the black around it, and its people in its pixels.

    Attributes:
        figures: how it went.
        image: uint8 (height, width, 3), as large as the network saw it.
        found: of the network, those from the score threshold on, the surest first: (n, joints, 3).
        wanted: of the truth: (n, joints, 3).
    """

    figures: ImageFigures
    image: Image
    found: Poses
    wanted: Poses


class Scene(NamedTuple):
    """An image of a split without the black around it, and where in it things are.

    Attributes:
        image: uint8 (height, width, 3), as large as the network saw it.
        letterbox: from the original image to the square that it lies in.
        skeleton: of the people in it.
    """

    image: Image
    letterbox: LetterBox
    skeleton: Skeleton

    def poses(self, people: Results) -> Poses:
        """COCO annotations or results, in the original image's pixels, as poses in this one's: (n, joints, 3)."""
        poses = poses_of(people, self.skeleton)
        poses[..., :2] = np.where(poses[..., 2:] > 0, self.joints(poses[..., :2]), 0)
        return poses

    def joints(self, joints: npt.ArrayLike) -> npt.NDArray[np.floating]:
        """Joints (…, 2) of the original image as joints of this one."""
        return self.letterbox.joints_to_network(joints) - self.letterbox.offset

    def boxes(self, boxes: Sequence[Sequence[float]]) -> npt.NDArray[np.floating]:
        """Boxes of the original image, left, top, width, height, as boxes of this one: (n, 4)."""
        moved = self.letterbox.boxes_to_network(np.asarray(boxes, np.float64).reshape(-1, 4))
        return moved - (*self.letterbox.offset, 0, 0)


class MapsOfImage(NamedTuple):
    """An image, uint8 (side, side, 3), and the network's answer for it."""

    image_id: int
    image: Image
    maps: PoseMaps


def judged_pictures(
    store: Store, spec: ReportSpec, manifest: Manifest, evaluation: PoseEvaluation, *, seen: bool
) -> dict[str, list[JudgedPicture]]:
    """Return the best, the median and the worst images by name.

    Args:
        store: the store.
        spec: the run.
        manifest: of its data set.
        evaluation: of the run.
        seen: of the images that it was trained on, in place of the split that was judged.

    Raises:
        StoreError: a file is not there.
        ArtifactError: one is not what it was.
    """
    folder, split = spec.dataset_folder, TRAINING_SPLIT if seen else evaluation.split
    ranked = evaluation.seen_pictures if seen else evaluation.pictures
    reader, truth = open_split(store, folder, manifest, split), read_truth(store, folder, manifest, split)
    which = SEEN if seen else split
    name = f"{spec.record_folder}/{people_name(which)}"
    try:
        found = read_people(store, spec.record_folder, which)
        people = _by_image([person for person in found if person["score"] >= evaluation.score_threshold])
    except (TypeError, KeyError) as error:
        raise ArtifactError(f"{store.where(name)} is not a list of people ({error}); evaluate the run again") from error
    wanted = _by_image([person for person in truth["annotations"] if not person["iscrowd"]])
    records = records_of(reader)
    return {
        kind: [
            _picture(
                scene(reader, records[image], manifest.skeleton), figures, people.get(image, []), wanted.get(image, [])
            )
            for figures in getattr(ranked, kind)
            for image in (figures.image_id,)
        ]
        for kind in Ranked.model_fields
    }


def maps_of_image(store: Store, spec: ReportSpec, manifest: Manifest, evaluation: PoseEvaluation) -> MapsOfImage | None:
    """Return the network's outputs that the evaluation kept, with their image.

    Raises:
        StoreError: a file is not there.
        ArtifactError: one is not what it was.
    """
    if evaluation.maps_of is None:
        return None
    reader = open_split(store, spec.dataset_folder, manifest, evaluation.split)
    record = records_of(reader)[evaluation.maps_of]
    name = f"{spec.record_folder}/{MAPS}"
    try:
        maps = maps_from_bytes(read_artifact(store, spec.record_folder, "evaluate", name))
    except (ValueError, KeyError, OSError) as error:
        raise ArtifactError(f"{store.where(name)} is not a file of maps ({error}); evaluate the run again") from error
    return MapsOfImage(evaluation.maps_of, reader.gather(np.array([record]), ["image"])["image"][0], maps)


def records_of(reader: SplitReader) -> dict[int, int]:
    """Return the index in its split of each image, by COCO's id."""
    ids = reader.gather(np.arange(len(reader)), ["image_id"])["image_id"][:, 0]
    return {image_id: place for place, image_id in enumerate(ids.tolist())}


def _by_image(people: Results) -> dict[int, Results]:
    found: dict[int, Results] = {}
    for person in people:
        found.setdefault(person["image_id"], []).append(person)
    return found


def scene(reader: SplitReader, record: int, skeleton: Skeleton) -> Scene:
    """Return a record's image."""
    fields = reader.gather(np.array([record]), ["image", "size"])
    square, (width, height) = fields["image"][0], fields["size"][0].tolist()
    letterbox = LetterBox(width, height, square.shape[0])
    (left, top), (columns, rows) = letterbox.offset, letterbox.size
    return Scene(np.ascontiguousarray(square[top : top + rows, left : left + columns]), letterbox, skeleton)


def _picture(there: Scene, figures: ImageFigures, people: Results, wanted: Results) -> JudgedPicture:
    return JudgedPicture(figures, there.image, there.poses(people), there.poses(wanted))
