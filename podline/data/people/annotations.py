"""Read and check annotation files in a sandbox: COCO's JSON, plain or in a zip file, and DeepLabCut's tables.

An invalid entry puts its image into quarantine. Otherwise a person with an unreadable annotation would be trained as
background. docs/how-to/coco.md lists the rules.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.lfs import refuse_lfs_pointer
from podline.data.people.deeplabcut import as_coco, is_table
from podline.data.people.files import AnnotationFile
from podline.data.people.image import PERSON
from podline.data.rawfiles import reading
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import ParseLimits, limits_of
from podline.data.shown import printable, shortened

_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)

Coordinate = Annotated[float, Field(gt=-1e9, lt=1e9)]
Size = Annotated[float, Field(ge=0, lt=1e9)]
Length = Annotated[int, Field(ge=0, lt=2**40)]


class _Checked(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _ListedImage(_Checked):
    """An entry of ``images``; if width and height are missing, they are read from the image file."""

    file_name: str = Field(min_length=1)
    width: int = Field(default=0, ge=1, lt=2**31)
    height: int = Field(default=0, ge=1, lt=2**31)

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if bool(self.width) != bool(self.height):
            raise ValueError("got one of width and height, expected both or neither")
        return self


class _RunLengths(_Checked):  # a mask; see podline.data.people.masks
    size: list[int]
    counts: str | Annotated[list[Length], Field(fail_fast=True)]


Polygons = Annotated[
    list[Annotated[list[float], Field(fail_fast=True)]], Field(max_length=bounds.OUTLINES, fail_fast=True)
]


def _kind_of_outline(outline: object) -> str:
    return "run lengths" if isinstance(outline, dict | _RunLengths) else "polygons"


def flat(keypoints: Any) -> Any:
    """Flatten ``[[x, y, visibility], …]`` to ``[x, y, visibility, …]``; return other values unchanged."""
    if isinstance(keypoints, list) and all(isinstance(joint, list) and len(joint) == 3 for joint in keypoints):
        return [value for joint in keypoints for value in joint]
    return keypoints


class Annotation(_Checked):
    """An entry of ``annotations``; missing values that COCO files have are filled in: box, area, unlabelled joints.

    The validation context is the number of joints, an int.
    """

    id: int
    image_id: int
    category_id: int = PERSON
    iscrowd: int = Field(default=0, ge=0, le=1)
    num_keypoints: int | None = None
    keypoints: Annotated[list[Coordinate], Field(fail_fast=True), BeforeValidator(flat)] = []
    bbox: tuple[Coordinate, Coordinate, Size, Size] | None = None
    area: Size | None = None
    segmentation: (
        Annotated[
            Annotated[_RunLengths, Tag("run lengths")] | Annotated[Polygons, Tag("polygons")],
            Discriminator(_kind_of_outline),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo[int]) -> Self:
        values = 3 * info.context
        if not self.keypoints and not self.num_keypoints:  # a crowd, or the box of a detector
            self.keypoints = [0.0] * values
        seen = self.keypoints[2::3]
        if len(self.keypoints) != values:
            raise ValueError(f"its keypoints have {len(self.keypoints)} numbers, expected {values}")
        if wrong := set(seen) - {0, 1, 2}:
            raise ValueError(f"a keypoint has the visibility {wrong.pop():g}, expected 0, 1 or 2")
        if self.num_keypoints is None:
            self.num_keypoints = len(seen) - seen.count(0)
        if self.bbox is None:
            self.bbox = self._box()
        if self.area is None:
            self.area = self.bbox[2] * self.bbox[3]
        if self.num_keypoints and not self.iscrowd:
            self.segmentation = None  # no record needs the outline, and outlines fill most of a file
        return self

    def _box(self) -> tuple[float, float, float, float]:
        """Return a box (left, top, width, height) around the labelled joints, or else the polygons, or else zeros."""
        joints = list(zip(*(self.keypoints[part::3] for part in range(3)), strict=True))
        places, border = [joint[:2] for joint in joints if joint[2]], 1
        if not places and isinstance(self.segmentation, list):
            places = [place for each in self.segmentation for place in zip(each[::2], each[1::2], strict=False)]
            border = 0
        if not places:
            return 0.0, 0.0, 0.0, 0.0
        (left, right), (top, bottom) = ((min(values), max(values)) for values in zip(*places, strict=True))
        return left, top, right - left + border, bottom - top + border


def _has_joints(annotation: Mapping[str, Any]) -> bool:
    """Return whether an unchecked annotation is of a single instance and has a non-zero keypoint value."""
    keypoints = flat(annotation.get("keypoints"))
    return isinstance(keypoints, list) and any(keypoints) and not annotation.get("iscrowd")


@dataclass(slots=True)
class ImageEntry:
    """An image in an annotation file, or an annotation whose image is not in the file.

    Attributes:
        record: name of the entry in the quarantine list and in errors.
        width: width of the annotated image; 0 to use the width of the image file.
        problem: why the image cannot be converted; empty if it can.
        people: number of annotations, crowds excepted, with any keypoint value other than 0.
        annotations: the annotations of people in the image, each an :class:`Annotation` as JSON.
    """

    record: str
    id: int = -1
    name: str = ""
    width: int = 0
    height: int = 0
    problem: str = ""
    people: int = 0
    annotations: list[str] = field(default_factory=list)

    def refuse(self, problem: str) -> None:
        """Record why the image cannot be converted; the first reason is kept."""
        self.problem = self.problem or problem


class Entries(NamedTuple):
    """The content of an annotation file.

    Attributes:
        images: the images, and the annotations whose image is not in the file.
        others: number of annotations of other categories, which are skipped.
        strays: number of skipped annotations that have joints.
    """

    images: list[ImageEntry]
    others: int
    strays: int


def limits_of_annotations(size: int) -> ParseLimits:
    """Return the limits for parsing an annotation file of ``size`` bytes, whose values become Python objects."""
    return limits_of(size, memory=12, rate=4e6)._replace(wait=60.0)


def document_of(file: AnnotationFile, remedy: str) -> dict[str, Any] | None:
    """Read an annotation file, a zip member or DeepLabCut's tables; runs in a sandbox, whose limits it sets.

    Returns:
        The document if it has the lists ``images`` and ``annotations``, else None. Segmentations of people with joints
        are dropped, since no record needs them and they fill most of a file.

    Raises:
        SourceError: the file cannot be read, is a Git LFS pointer, or is neither JSON nor a table of DeepLabCut.
    """
    path, shown = file.path, str(file)
    begin(limits_of_annotations(size_of(path)), shown)
    if file.member:
        data = _member(file)
    else:
        with reading(shown):
            data = as_coco(path) if is_table(path) or path.is_dir() else path.read_bytes()
    refuse_lfs_pointer(data, shown)
    try:
        document = json.loads(data, object_hook=_without_outline)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown} is not valid JSON ({error}); {remedy}") from error
    lists = isinstance(document, dict) and isinstance(document.get("images"), list)
    return document if lists and isinstance(document.get("annotations"), list) else None


def _member(file: AnnotationFile) -> bytes:
    with reading(str(file), "a zip file", "fetch it again"), zipfile.ZipFile(file.path) as archive:
        if file.member not in archive.namelist():
            raise SourceError(f"{file.path} has no {file.member}; fetch it again")
        found = archive.getinfo(file.member)
        most = bounds.unpacked(found.compress_size)
        if found.file_size > most:
            raise SourceError(f"{file} has {found.file_size:,} bytes vs {most:,} at most; fetch it again")
        begin(limits_of_annotations(found.file_size), str(file))
        return archive.read(found)


def _without_outline(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("num_keypoints") and found.get("bbox") and not found.get("iscrowd"):
        found.pop("segmentation", None)
    return found


def size_of(path: Path) -> int:
    """Return the size in bytes of a file, or of all CSV files in a folder."""
    with reading(path):
        files = path.rglob("*.csv") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)


def entries_of(document: Mapping[str, Any], ids: Collection[int | str], joints: int) -> Entries:
    """Check the entries of a document from :func:`document_of`; skip annotations with a ``category_id`` not in ``ids``.

    ``joints`` is the number of joints that each annotation must have.
    """
    entries = [_image_entry(f"images[{place}]", image) for place, image in enumerate(document["images"])]
    named = [(name, entry) for name, entry in zip(map(_id_of, document["images"]), entries, strict=True) if entry.name]
    refuse_twice([entry for _, entry in named], "id", [name for name, _ in named])
    by_id = dict(named)
    usable = [(name, entry) for name, entry in by_id.items() if not entry.problem]
    for (_, entry), number in zip(usable, numbered([name for name, _ in usable]), strict=True):
        entry.id = number
    mine, others, strays = list[tuple[ImageEntry, Mapping[str, Any]]](), 0, 0
    for place, found in enumerate(document["annotations"]):
        annotation = found if isinstance(found, dict) else {"image_id": found}
        image, people = annotation.get("image_id"), _has_joints(annotation)
        entry = by_id.get(identifier(image))
        if entry is None:
            problem = f"there is no image {shortened(image)}"
            entries.append(ImageEntry(f"annotations[{place}]", problem=problem, people=people))
        elif identifier(annotation.get("category_id")) not in ids:
            others, strays = others + 1, strays + people
        else:
            entry.people += people
            mine.append((entry, annotation))
    seen = set[tuple[int, int | str | None]]()
    people_ids = [_id_of(annotation) for _, annotation in mine]
    for (entry, annotation), name, number in zip(mine, people_ids, numbered(people_ids), strict=True):
        if name is not None and (entry.id, name) in seen:
            entry.refuse(f"annotation {shortened(name)} occurs twice")
        seen.add((entry.id, name))
        _add(entry, annotation, number, joints)
    return Entries(entries, others, strays)


def _id_of(entry: object) -> int | str | None:
    return identifier(entry.get("id")) if isinstance(entry, dict) else None


def identifier(value: object) -> int | str | None:
    """Return an id as int if it is a whole number in any form (7, 7.0, "7"), as str if other text, else as None."""
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def numbered(ids: Sequence[int | str | None]) -> Sequence[int]:
    """Return int ids for a file's entries: its own if they are distinct integers from 0 to 2**62 - 1; else 1 to n."""
    numbers = [number for number in ids if isinstance(number, int) and 0 <= number < 2**62]
    return numbers if len(set(numbers)) == len(ids) else range(1, len(ids) + 1)


def _image_entry(record: str, image: object) -> ImageEntry:
    try:
        found = _ListedImage.model_validate(_given(image))
    except ValidationError as error:
        return ImageEntry(record, problem=_problem(error))
    if (name := _id_of(image)) is None:
        return ImageEntry(record, problem="its id is missing, or is neither a number nor text")
    record = f"{printable(found.file_name, bounds.NAME_BYTES)} (image {printable(str(name), bounds.NAME_BYTES)})"
    return ImageEntry(record, name=found.file_name, width=found.width, height=found.height)


def refuse_twice(entries: Sequence[ImageEntry], what: str, values: Sequence[Any]) -> None:
    """Refuse entries with equal values, such as an image's id or file; None equals no value.

    An entry lists only some of the image's people, and the others would be trained as background.
    """
    first: dict[Any, ImageEntry] = {}
    for entry, value in zip(entries, values, strict=True):
        other = entry if value is None else first.setdefault(value, entry)
        if other is not entry:
            entry.refuse(f"its {what} is also that of {other.record}; list the image once")
            other.refuse(f"its {what} is also that of {entry.record}; list the image once")


def _add(entry: ImageEntry, found: Mapping[str, Any], number: int, joints: int) -> None:
    own = {"id": number, "image_id": entry.id, "category_id": PERSON}
    try:
        annotation = Annotation.model_validate({**_given(found), **own}, context=joints)
    except ValidationError as error:
        entry.refuse(f"annotation {shortened(found.get('id'))}: {_problem(error)}")
        return
    entry.annotations.append(annotation.model_dump_json(exclude_none=True))


def _given(found: Any) -> Any:
    """Return an object without null values, so that the defaults apply; return other values unchanged."""
    return {key: value for key, value in found.items() if value is not None} if isinstance(found, dict) else found


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return first["msg"].removeprefix("Value error, ")
    place = " ".join(str(part) for part in first["loc"])
    found = "missing" if first["type"] == "missing" else shortened(first["input"])
    return f"its {place} is {found}: {first['msg']}"
