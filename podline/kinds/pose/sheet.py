"""Pictures of poses for the sheet: stored examples, and the people that a run detects."""

# pyright: standard
from __future__ import annotations

import keras
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Arrays, Image
from podline.base.drawing.picture_sheet import PictureRow, SheetBlock, SheetPicture
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.data.letterbox import LetterBox
from podline.data.reader import open_split
from podline.documents.manifest import TEST, Manifest
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.judging import chosen_threshold, detected
from podline.kinds.pose.settings import PoseSettings
from podline.kinds.pose.skeletons import poses_of, with_skeletons
from podline.stages.tools import ShowSpec
from podline.store.contract import Store

_KEYPOINTS, _PEOPLE = "keypoints", "people"


def drawn(records: Arrays, manifest: Manifest) -> list[SheetPicture]:
    """Return images with the people of their records."""
    return [
        _picture(image, poses[(poses[..., 2] > 0).any(axis=-1)], manifest.skeleton)
        for image, poses in zip(records["image"], records[_KEYPOINTS], strict=True)
    ]


def _picture(image: Image, poses: npt.NDArray[np.float32], skeleton: Skeleton) -> SheetPicture:
    # At twice the size, skeletons are thin enough to show the image below them.
    return SheetPicture(with_skeletons(image, poses, skeleton, 2.0), plural(len(poses), "instance"))


def sheet_block(
    spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
) -> tuple[SheetBlock, int, int]:
    """Return the first test images with people, detected and labelled; the numbers of judged and correct ones are 0."""
    poses = PoseSettings.of(spec.recipe)
    reader = open_split(store, spec.dataset_folder, manifest, TEST)
    people = reader.gather(np.arange(len(reader)), [_PEOPLE])[_PEOPLE]
    ids = np.flatnonzero(people)[: spec.examples]  # others have no people to show
    threshold = chosen_threshold(store, f"runs/{spec.run}") or 0.0
    found = detected(model, spec.recipe, reader, manifest, reporter, ids)
    shown = [person for person in found if person["score"] >= threshold]
    records = reader.gather(ids, ["image", "image_id", "size", _KEYPOINTS])
    pictures = []
    places = zip(records["image"], records["image_id"][:, 0], records["size"].tolist(), strict=True)
    for image, image_id, (width, height) in places:
        mine = poses_of([person for person in shown if person["image_id"] == image_id], manifest.skeleton)
        letterbox = LetterBox(width, height, poses.side)
        mine[..., :2] = np.where(mine[..., 2:] > 0, letterbox.joints_to_network(mine[..., :2]), 0)
        pictures.append(_picture(image, mine, manifest.skeleton))
    rows = [PictureRow("found", pictures), PictureRow("labelled", drawn(records, manifest))]
    about = f"the first test images with instances; instances found with a score from {threshold:.3f} on are drawn"
    return SheetBlock(f"What {spec.run} finds", about, rows if len(ids) else []), 0, 0
