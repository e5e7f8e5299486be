"""Prepares images of a pose evaluation with the detected and the annotated people."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Image
from podline.base.errors import ArtifactError
from podline.data.letterbox import LetterBox
from podline.data.people.truth import read_truth
from podline.data.reader import SplitReader, open_split
from podline.data.versions.record_names import RecordNames
from podline.documents.completion import read_artifact
from podline.documents.manifest import TRAINING, Manifest
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.coco_results import Results
from podline.kinds.pose.document import MAPS, SEEN, PeopleFigures, PoseEvaluation, Ranked, people_name, read_people
from podline.kinds.pose.maps import PoseMaps, maps_from_bytes
from podline.kinds.pose.skeletons import poses_of
from podline.stages.specs import ReportSpec
from podline.store.contract import Store

Poses = npt.NDArray[np.float32]


class JudgedPicture(NamedTuple):
    """An image without black borders, with its people in pixels of this image.

    Attributes:
        figures: the figures of the image.
        image: uint8 (height, width, 3), at the network's resolution.
        found: detected people with at least the threshold's score, best first: (n, joints, 3).
        wanted: annotated people: (n, joints, 3).
        name: the image's file in the source, or the image's number if the file is unknown.
    """

    figures: PeopleFigures
    image: Image
    found: Poses
    wanted: Poses
    name: str


class Scene(NamedTuple):
    """An image of a split, cut out of the network's square input without its black borders.

    The methods convert positions in the original image to positions in this image.

    Attributes:
        image: uint8 (height, width, 3), at the network's resolution.
        letterbox: position and scale of the original image in the network's square input.
        skeleton: the skeleton of the people in the image.
    """

    image: Image
    letterbox: LetterBox
    skeleton: Skeleton

    def poses(self, people: Results) -> Poses:
        """Convert COCO annotations or results in the original image's pixels to poses in this image: (n, joints, 3)."""
        poses = poses_of(people, self.skeleton)
        poses[..., :2] = np.where(poses[..., 2:] > 0, self.joints(poses[..., :2]), 0)
        return poses

    def joints(self, joints: npt.ArrayLike) -> Array:
        """Map joints (…, 2) of the original image to this image."""
        return self.letterbox.joints_to_network(joints) - self.letterbox.offset

    def boxes(self, boxes: Sequence[Sequence[float]]) -> Array:
        """Map boxes of the original image, left, top, width, height, to this image: (n, 4)."""
        moved = self.letterbox.boxes_to_network(np.asarray(boxes, np.float64).reshape(-1, 4))
        return moved - (*self.letterbox.offset, 0, 0)


def judged_pictures(
    store: Store, spec: ReportSpec, manifest: Manifest, evaluation: PoseEvaluation, *, seen: bool
) -> dict[str, list[JudgedPicture]]:
    """Return the images of each group of :class:`podline.kinds.pose.document.Ranked`, by the group's name.

    Args:
        store: the store with the run and the data set.
        spec: the spec of the report.
        manifest: the manifest of the data set.
        evaluation: the evaluation of the run.
        seen: use training images instead of the judged split.

    Raises:
        StoreError: a file is missing.
        ArtifactError: a file has changed.
    """
    folder, split = spec.dataset_folder, TRAINING if seen else evaluation.split
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
    records, names = records_of(reader), RecordNames(store, manifest)

    def picture(figures: PeopleFigures) -> JudgedPicture:
        image = figures.image_id
        there = scene(reader, records[image], manifest.skeleton)
        [known] = names.facts(split, np.array([records[image]], np.int64)).names
        shown = there.poses(people.get(image, [])), there.poses(wanted.get(image, []))
        return JudgedPicture(figures, there.image, *shown, known or f"image {image}")

    return {kind: [picture(figures) for figures in getattr(ranked, kind)] for kind in Ranked.model_fields}


def stored_maps(
    store: Store, spec: ReportSpec, manifest: Manifest, evaluation: PoseEvaluation
) -> tuple[Image, PoseMaps] | None:
    """Return the image ``evaluation.maps_of``, uint8 (side, side, 3), and its stored maps; None without such an image.

    Raises:
        StoreError: a file is missing.
        ArtifactError: a file has changed.
    """
    if evaluation.maps_of is None:
        return None
    reader = open_split(store, spec.dataset_folder, manifest, evaluation.split)
    record = records_of(reader)[evaluation.maps_of]
    name = f"{spec.record_folder}/{MAPS}"
    try:
        maps = maps_from_bytes(read_artifact(store, spec.record_folder, "evaluate", name))
    except (ValueError, KeyError, OSError, BadZipFile, zlib.error) as error:
        raise ArtifactError(f"{store.where(name)} is not a file of maps ({error}); evaluate the run again") from error
    return reader.gather(np.array([record]), ["image"])["image"][0], maps


def records_of(reader: SplitReader) -> dict[int, int]:
    """Return the position of each image's record in its split, by COCO's image id."""
    ids = reader.gather(np.arange(len(reader)), ["image_id"])["image_id"][:, 0]
    return {image_id: place for place, image_id in enumerate(ids.tolist())}


def _by_image(people: Results) -> dict[int, Results]:
    found: dict[int, Results] = {}
    for person in people:
        found.setdefault(person["image_id"], []).append(person)
    return found


def scene(reader: SplitReader, record: int, skeleton: Skeleton) -> Scene:
    """Read the image at a position of its split, and cut off the black borders."""
    fields = reader.gather(np.array([record]), ["image", "size"])
    square, (width, height) = fields["image"][0], fields["size"][0].tolist()
    letterbox = LetterBox(width, height, square.shape[0])
    (left, top), (columns, rows) = letterbox.offset, letterbox.size
    return Scene(np.ascontiguousarray(square[top : top + rows, left : left + columns]), letterbox, skeleton)
