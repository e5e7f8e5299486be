"""Finds annotations in COCO's format or DeepLabCut's in a folder, and the images that they are of.

Looked for are JSON files in the folder, in ``annotations/``, and in ``train/``, ``val/``, ``valid/`` and ``test/``. One
file is all there is; of several, the words train, val and test in their names say what each is for. Where there is no
such file, DeepLabCut's tables are taken, all together (:mod:`podline.data.sources.deeplabcut`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podline.data.shown import shortened
from podline.data.sources.annotation_files import content_of, document_of, limits_of_annotations
from podline.data.sources.coco_layout import Annotated
from podline.data.sources.deeplabcut import tables_of
from podline.data.sources.parser_pool import Parser
from podline.data.sources.unpacking import unpacking
from podline.errors import SourceError
from podline.plurals import plural
from podline.sandbox import Breach, refusal
from podline.settings import load

_FOLDERS = ("annotations", "train", "val", "valid", "validation", "test")
_IMAGE_FOLDERS = ("images", "imgs", "train", "val", "valid", "validation", "test", "train2017", "val2017")
_ROLE = re.compile(r"(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])")
_NAMES = 50  # of images, by which the folder that holds them is told


@dataclass(frozen=True)
class Outline:
    """What a file of annotations is about.

    Attributes:
        path: the file.
        categories: as they stand there.
        values: ``category_id`` → how many annotations with a labelled joint have how many numbers of keypoints.
        firsts: ``category_id`` → the id of the first of these annotations.
        unread: an annotation whose keypoints are neither numbers nor [x, y, visibility] each, and what they are.
        names: the first images'.
        annotations: how many there are.
    """

    path: Path
    categories: list[Any]
    values: dict[Any, Counter[int]]
    firsts: dict[Any, Any]
    unread: str
    names: list[str]
    annotations: int

    @property
    def role(self) -> str:
        """Return ``train``, ``val``, ``test`` or nothing, as its name or its folder's says."""
        found = _ROLE.search(self.path.name.lower()) or _ROLE.search(self.path.parent.name.lower())
        return found[1] if found else ""

    @property
    def title(self) -> str:
        """Return its name without a suffix."""
        return self.path.name.removesuffix(".json")


def outlines_of(place: Path) -> list[Outline]:
    """Return the files of annotations of a folder that have keypoints, training first; or the one file that is given.

    Raises:
        SourceError: there are none, or it is not clear which of them are meant.
    """
    if place.is_file() and (remedy := unpacking([str(place)])):
        raise SourceError(f"{place} is an archive vs annotations in COCO's format, or their folder: {remedy}")
    found = _outlines([place]) if place.is_file() else _outlines(_json_files(place))
    if not found and place.is_dir() and tables_of(place):
        found = _outlines([place])
    if not found:
        raise SourceError(
            f"{place} holds no annotations of keypoints vs a JSON file in COCO's format (lists images, annotations and "
            "categories) in it or in annotations/, or DeepLabCut's CollectedData_*.csv in it or in labeled-data/; give "
            "the folder or the file"
        )
    learned = [outline for outline in found if outline.values]
    if not learned:
        told = "; ".join(f"{each.path}: {plural(each.annotations, 'annotation')}" for each in found)
        unread = next((f"; {each.unread}" for each in found if each.unread), "")
        raise SourceError(f"nothing to learn: {told}, none with a labelled joint in keypoints{unread}; annotate some")
    return learned if len(learned) == 1 else _splits(place, learned)


def has_annotations(place: Path) -> bool:
    """Return whether a folder or a JSON file has annotations in COCO's format, or a folder DeepLabCut's tables.

    Raises:
        SourceError: a JSON file cannot be read.
    """
    if place.is_file():
        return place.name.lower().endswith(".json") and bool(_outlines([place]))
    return place.is_dir() and bool(_outlines(_json_files(place)) or tables_of(place))


def _json_files(place: Path) -> list[Path]:
    if not place.is_dir():
        raise SourceError(f"{place} is no folder and no file; give the one with annotations in COCO's format")
    folders = [folder for folder in (place, *(place / name for name in _FOLDERS)) if folder.is_dir()]
    found = [path for folder in folders for path in sorted(folder.iterdir(), key=lambda path: path.name)]
    return [path for path in found if path.name.lower().endswith(".json") and path.is_file()]


def _outlines(paths: Sequence[Path]) -> list[Outline]:
    """Read files in a sandbox; those that hold no annotations are passed over."""
    factor, outlines = load().parse_limits, []
    answers = Parser(f"{__name__}:outliner", (), limits_of_annotations(0)).parse(paths, "annotations", factor)
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, Breach):
            raise SourceError(refusal(str(path), answer, factor))
        if answer is not None:
            categories, kinds, unread, names, annotations = answer
            values = {category: Counter(dict(counts)) for category, counts, _ in kinds}
            firsts = {category: first for category, _, first in kinds}
            outlines.append(Outline(path, categories, values, firsts, unread, names, annotations))
    return outlines


def outliner() -> Callable[[Path], tuple[Any, ...] | None]:
    """Return what reads a file; runs in a sandbox."""
    return _outline


def _outline(path: Path) -> tuple[Any, ...] | None:
    """Return what a JSON file is about, as :class:`Outline` has it; None where it holds no annotations."""
    document = document_of(content_of(path), str(path), "restore it or move it away")
    if document is None:
        return None
    values, firsts, unread = defaultdict[Any, Counter[int]](Counter), dict[Any, str](), ""
    annotations = [entry for entry in document["annotations"] if isinstance(entry, dict)]
    for entry in annotations:
        keypoints, number = flat(entry.get("keypoints")), shortened(entry.get("id"))
        if isinstance(keypoints, list) and any(isinstance(value, list) for value in keypoints):
            unread = unread or (
                f"annotation {number} has keypoints {shortened(keypoints)} vs numbers, or [x, y, visibility] each"
            )
        elif isinstance(keypoints, list) and any(seen not in (0, None) for seen in keypoints[2::3]):
            category = entry.get("category_id")
            category = category if type(category) is int else shortened(category)
            values[category][len(keypoints)] += 1
            firsts.setdefault(category, number)
    names = [entry.get("file_name") for entry in document["images"][:_NAMES] if isinstance(entry, dict)]
    categories = document.get("categories")
    return (
        categories if isinstance(categories, list) else [],
        [(category, list(counts.items()), firsts[category]) for category, counts in values.items()],
        unread,
        [name for name in names if isinstance(name, str)],
        len(annotations),
    )


def flat(keypoints: Any) -> Any:
    """Return ``[[x, y, visibility], …]`` as ``[x, y, visibility, …]``, and anything else as it is."""
    if isinstance(keypoints, list) and all(isinstance(joint, list) and len(joint) == 3 for joint in keypoints):
        return [value for joint in keypoints for value in joint]
    return keypoints


def _splits(place: Path, outlines: list[Outline]) -> list[Outline]:
    """Those to train on and to test on: COCO tests on what it calls val, so that is taken before test."""
    by_role = defaultdict(list)
    for outline in outlines:
        by_role[outline.role].append(outline)
    judged = by_role["val"] or by_role["test"]
    if by_role[""] or len(by_role["train"]) != 1 or len(judged) != 1:
        names = ", ".join(outline.path.name for outline in outlines)
        raise SourceError(
            f"{place} holds {plural(len(outlines), 'file')} of keypoints vs one, or one with train and one with val or "
            f"test in its name: {names}; give one of them as the source, or move the others out of the folder"
        )
    return [*by_role["train"], *judged]


def annotated(place: Path, outlines: list[Outline]) -> list[Annotated]:
    """Each file of annotations with the folder of its images: the one that has most of the first of them.

    Raises:
        SourceError: no folder has any.
    """
    folder = place.parent if place.is_file() else place
    return [
        Annotated(split, outline.title, outline.path, "", _images(folder, outline))
        for split, outline in zip(("train", "test"), outlines, strict=False)
    ]


def _images(folder: Path, outline: Outline) -> Path:
    beside = outline.path.parent
    candidates = [beside, *(beside / name for name in _IMAGE_FOLDERS), folder]
    candidates += [folder / name for name in _IMAGE_FOLDERS]
    candidates += [folder / "images" / name for name in _IMAGE_FOLDERS]
    there = [(sum((each / name).is_file() for name in outline.names), each) for each in dict.fromkeys(candidates)]
    most, best = max(there, key=lambda found: found[0])
    if not most:
        wanted = ", ".join(outline.names[:2]) or "any"
        raise SourceError(
            f"{outline.path}: of its images ({wanted} …) none is beside it, in {folder} or in images/ there; "
            "put them into images/"
        )
    return best
