"""Opens users' own keypoints: images, with annotations in COCO's or DeepLabCut's format.

It looks for JSON files in the folder, in ``annotations/``, and in ``train/``, ``val/``, ``valid/``, ``dev/`` and
``test/``. A single file holds all images; among several, the words train, val (or dev) and test in the names show the
splits. Without such a file, all tables of DeepLabCut are read (:mod:`podline.data.sources.deeplabcut`). COCO's people
are one use of this code: :mod:`podline.data.sources.coco` decides about the annotations.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from podline.data.sandbox.pool import Sandbox
from podline.data.sources.coco import CocoSource, open_listed
from podline.data.sources.coco_annotations import (
    document_of,
    flat,
    identifier,
    limits_of_annotations,
    list_images,
    read_annotations,
    size_of,
)
from podline.data.sources.coco_files import AnnotationFile
from podline.data.sources.coco_settings import KeypointSettings
from podline.data.sources.deeplabcut import tables_of
from podline.data.sources.keypoint_skeletons import Joints, Summary, joints_of, skeleton_of
from podline.data.sources.remote import on_this_machine
from podline.data.sources.unpacking import unpacking
from podline.documents.manifest import SPLITS, TEST, TRAIN
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.datasets import DataSet

_FOLDERS = ("annotations", "train", "val", "valid", "validation", "dev", "test")
_IMAGE_FOLDERS = (
    "images",
    "imgs",
    "train",
    "val",
    "valid",
    "validation",
    "test",
    "train2017",
    "val2017",
    "test2017",
    "dev",
)
_ROLE = re.compile(r"(?<![a-z])(train|val|dev|test)(?:ing|id|idation)?(?![a-z])")
_NAMES = 50  # of images, which identify their folder


def open_keypoints(dataset: DataSet, source: str, settings: KeypointSettings, work: Path) -> CocoSource:
    """Open a folder with annotations, or an annotation file with images beside it.

    Args:
        dataset: the data set.
        source: the folder or file, here or ``gs://bucket/prefix``.
        settings: how to read the annotations.
        work: the cache folder of sources.

    Raises:
        SourceError: there are no annotations, no labelled joints, or no images of them.
    """
    with on_this_machine(source, work) as place, tempfile.TemporaryDirectory(prefix="annotations") as folder:
        with Sandbox(f"{__name__}:parser") as sandbox:
            chosen = _chosen(place, _summaries(place, sandbox))
            joints = _same_joints([*chosen.values()], settings.category)
            files = [
                AnnotationFile(split, summary.path, "", _images(place, summary)) for split, summary in chosen.items()
            ]
            listed = read_annotations(sandbox, files, Path(folder), joints.ids, len(joints.names))
        annotations = (json.loads(text) for entry in listed[0].entries() for text in entry.annotations)
        skeleton, notes = skeleton_of(joints, settings, annotations, files[0].path)
        told = [f"{each.split}: {each.path}, images in {each.images}".replace(str(place), source) for each in files]
        return open_listed(dataset, listed, settings, work, skeleton, (*told, *notes))


def has_annotations(place: Path) -> bool:
    """Return whether a folder or JSON file has annotations in COCO's format, or a folder has DeepLabCut's tables.

    Raises:
        SourceError: a JSON file cannot be read.
    """
    if place.is_file() and not place.name.lower().endswith(".json"):
        return False
    with Sandbox(f"{__name__}:parser") as sandbox:
        return bool(_summaries(place, sandbox))


def parser() -> Callable[[Any], Any]:
    """Return a function that reads a file twice, for a summary and for its images; runs in a sandbox."""
    return lambda item: _summary(item) if isinstance(item, Path) else list_images(*item)


def _summaries(place: Path, sandbox: Sandbox) -> list[Summary]:
    """Return the summaries of a folder's annotation files, or of a single file."""
    if not place.exists():
        raise SourceError(f"{place} does not exist; give the one with annotations in COCO's format")
    if place.is_file() and (remedy := unpacking([str(place)])):
        raise SourceError(f"{place} is an archive vs annotations in COCO's format, or their folder: {remedy}")
    found = _read([place] if place.is_file() else _json_files(place), sandbox)
    return found or (_read([place], sandbox) if place.is_dir() and tables_of(place) else [])


def _json_files(place: Path) -> list[Path]:
    folders = [folder for folder in (place, *(place / name for name in _FOLDERS)) if folder.is_dir()]
    found = [path for folder in folders for path in sorted(folder.iterdir(), key=lambda path: path.name)]
    return [path for path in found if path.name.lower().endswith(".json") and path.is_file()]


def _read(paths: Iterable[Path], sandbox: Sandbox) -> list[Summary]:
    """Read files; skip those without annotations."""
    found = [(path, sandbox.one(path, limits_of_annotations(size_of(path)), str(path))) for path in paths]
    return [Summary(path, dict(counts), *rest) for path, answer in found if answer for counts, *rest in [answer]]


def _summary(path: Path) -> tuple[Any, ...] | None:
    """Return the fields of a :class:`Summary` from the counts on; None for other JSON."""
    _data, document = document_of(path, "", "restore it or move it away")
    if document is None:
        return None
    given = document.get("categories")
    categories = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
    categories = [entry | {"id": name} for entry in categories if (name := identifier(entry.get("id"))) is not None]
    known = {entry["id"] for entry in categories}
    values = defaultdict[int | str, Counter[int]](Counter)
    annotations = [entry for entry in document["annotations"] if isinstance(entry, dict)]
    for entry in annotations:
        keypoints, category = flat(entry.get("keypoints")), identifier(entry.get("category_id"))
        labelled = isinstance(keypoints, list) and any(seen not in (0, None) for seen in keypoints[2::3])
        if labelled and category is not None and (category in known or not known):
            values[category][len(keypoints)] += 1
    counts = [(category, found.most_common(1)[0][0]) for category, found in values.items()]
    names = [entry.get("file_name") for entry in document["images"][:_NAMES] if isinstance(entry, dict)]
    return counts, categories, [name for name in names if isinstance(name, str)], len(annotations)


def _chosen(place: Path, summaries: list[Summary]) -> dict[str, Summary]:
    """Return the annotation file of each split; of two files, COCO's val is the test split."""
    if not summaries:
        raise SourceError(
            f"{place} holds no annotations of keypoints vs a JSON file in COCO's format (lists images, annotations and "
            "categories) in it or in annotations/, or DeepLabCut's CollectedData_*.csv in it or in labeled-data/; give "
            "the folder or the file"
        )
    learned = [summary for summary in summaries if summary.counts]
    if not learned:
        told = "; ".join(f"{each.path}: {plural(each.annotations, 'annotation')}" for each in summaries)
        raise SourceError(
            f"nothing to learn: {told}, none of a category in the file with a labelled joint in keypoints (x, y, "
            "visibility of each); annotate some"
        )
    by_role = {role: [each for each in learned if _role(each.path) == role] for role in ("", "train", "val", "test")}
    held_out = by_role["val"] or by_role["test"]
    if len(learned) == 1:
        return {TRAIN: learned[0]}
    if len(by_role["train"]) == 1 and len(held_out) == 1 and not by_role[""]:
        splits = SPLITS if by_role["val"] and len(by_role["test"]) == 1 else (TRAIN, TEST)
        return dict(zip(splits, [*by_role["train"], *held_out, *by_role["test"]], strict=False))
    names = ", ".join(each.path.name for each in learned)
    raise SourceError(
        f"{place} holds {plural(len(learned), 'file')} of keypoints vs one, or one with train and one with val, test "
        f"or each in its name: {names}; give one of them as the source, or move the others out of the folder"
    )


def _role(path: Path) -> str:
    """Return the split in the name of a file or its folder: ``train``, ``val``, ``test`` or an empty string."""
    found = _ROLE.search(path.name.lower()) or _ROLE.search(path.parent.name.lower())
    return found[1].replace("dev", "val") if found else ""


def _images(place: Path, summary: Summary) -> Path:
    """Return the folder of a file's images: the one that has most of the first images."""
    folder, beside = place.parent if place.is_file() else place, summary.path.parent
    candidates = [beside, *(beside / name for name in _IMAGE_FOLDERS), folder]
    candidates += [each / name for each in (folder, folder / "images") for name in _IMAGE_FOLDERS]
    most, best = max(
        ((sum((each / name).is_file() for name in summary.names), each) for each in candidates),
        key=lambda found: found[0],
    )
    if most:
        return best
    wanted = ", ".join(summary.names[:2]) or "any"
    raise SourceError(
        f"{summary.path}: of its images ({wanted} …) none is beside it, in {folder} or in images/ there; put them into "
        "images/"
    )


def _same_joints(summaries: Sequence[Summary], wanted: str) -> Joints:
    """Return the joints of the training file, and check that the other files have the same."""
    first, *others = (joints_of(summary, wanted) for summary in summaries)
    for summary, joints in zip(summaries[1:], others, strict=True):
        if joints.names != first.names:
            raise SourceError(
                f"{summary.path} has the joints {', '.join(joints.names)} vs {', '.join(first.names)} of "
                f"{summaries[0].path}"
            )
    return first
