"""Opens keypoints of one's own: annotations in COCO's format of whatever has joints, and the images that they are of.

COCO's people are one instance: what becomes of an annotation is decided in :mod:`podline.data.sources.coco`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podline.data.sources.coco import CocoSource, Understood, annotations_of_all, open_listed
from podline.data.sources.coco_annotations import Category
from podline.data.sources.keypoint_layout import Outline, annotated, flat, outlines_of
from podline.data.sources.keypoint_settings import KeypointSettings
from podline.data.sources.keypoint_skeletons import Joints, joints_of, skeleton_of
from podline.data.sources.remote import on_this_machine
from podline.errors import SourceError
from podline.recipes.datasets import DataSet


def open_keypoints(dataset: DataSet, source: str, settings: KeypointSettings, work: Path) -> CocoSource:
    """Open a folder with annotations, or a file of annotations with images beside it.

    Args:
        dataset: what it is.
        source: the folder or file, here or ``gs://bucket/prefix``.
        settings: how annotations are understood.
        work: the cache folder of sources.

    Raises:
        SourceError: there are no annotations in COCO's format, nothing to learn in them, or no images of them.
    """
    with on_this_machine(source, work) as place:
        outlines = outlines_of(place)
        found = annotated(place, outlines)
        joints = _same_joints(outlines, settings.category)
        category = Category(joints.ids, len(joints.joints), _completed)
        with annotations_of_all(found, category) as listed:
            people = (one for entry in listed[0].entries() for one in entry.annotations if not one.get("problem"))
            skeleton, notes = skeleton_of(joints, settings, people, found[0].annotations)
            told = [f"{each.split}: {each.annotations}, images in {each.images}" for each in found]
            told = [line.replace(str(place), source) for line in told]
            understood = Understood(category, joints.name, skeleton, (*told, *notes))
            return open_listed(dataset.name, listed, settings.side, settings.max_people, work, understood)


def _same_joints(outlines: Sequence[Outline], wanted: str) -> Joints:
    """Return the joints of the file that is trained on; another file has the same."""
    first, *others = (joints_of(outline, wanted) for outline in outlines)
    for outline, joints in zip(outlines[1:], others, strict=True):
        if joints.joints != first.joints:
            raise SourceError(
                f"{outline.path} has the joints {', '.join(joints.joints)} vs {', '.join(first.joints)} of "
                f"{outlines[0].path}"
            )
    return first


def _completed(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation with what COCO's have and this one may lack: whether it is a crowd, its box and its area."""
    made = dict(annotation)
    if made.get("iscrowd") in (None, False, True):
        made["iscrowd"] = int(made.get("iscrowd") or 0)
    given = flat(made.get("keypoints"))
    keypoints: list[Any] = []
    if given is None:
        made["num_keypoints"] = made.get("num_keypoints") or 0
    elif _are_numbers(given):
        keypoints = [
            int(value) if place % 3 == 2 and value == int(value) else value for place, value in enumerate(given)
        ]
        made["keypoints"] = keypoints
        if type(made.get("num_keypoints")) is not int:
            made["num_keypoints"] = sum(seen > 0 for seen in keypoints[2::3])
    box: Any = made.get("bbox")
    if box is None:
        box = made["bbox"] = _box(keypoints, made.get("segmentation"))
    if made.get("area") is None and _are_numbers(box) and len(box) == 4:
        made["area"] = box[2] * box[3]
    return made


def _box(keypoints: list[Any], outline: Any) -> list[Any] | None:
    """Return a box around labelled joints, else around polygons; one of no size where there are neither."""
    seen = [place for place, value in enumerate(keypoints[2::3]) if value > 0]
    if seen:
        columns, rows = ([keypoints[3 * place + axis] for place in seen] for axis in (0, 1))
        return [min(columns), min(rows), max(columns) - min(columns) + 1, max(rows) - min(rows) + 1]
    if not outline:
        return [0, 0, 0, 0]
    if isinstance(outline, list) and all(_are_numbers(polygon) and len(polygon) > 1 for polygon in outline):
        columns, rows = ([value for polygon in outline for value in polygon[axis::2]] for axis in (0, 1))
        return [min(columns), min(rows), max(columns) - min(columns), max(rows) - min(rows)]
    return None


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) in (int, float) and math.isfinite(v) for v in values)
