"""Reads DeepLabCut's labels, ``CollectedData_*.csv``, as annotations in COCO's format.

A table begins with the rows scorer, individuals (of several animals only), bodyparts and coords. Each row after them is
a frame: its path in one cell or in three, and x and y of each body part. Empty cells are a joint that is not labelled.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from podline.data import bounds
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import reading
from podline.data.shown import printable, shortened
from podline.errors import SourceError

_LABELS = "labeled-data"
_HEADER = ("scorer", "individuals", "bodyparts", "coords")
_CELLS_OF_A_PATH = (1, 3)
_SINGLE = "single"  # the individual to which DeepLabCut gives unique body parts
_VISIBLE, _NOWHERE = 2, [0, 0, 0]


class Frame(NamedTuple):
    """A frame of a table.

    Attributes:
        name: of the image, below the folder that the tables are in.
        keypoints: individual → x, y and visibility of its joints; of those with a label only.
    """

    name: str
    keypoints: dict[str, list[float]]


class Table(NamedTuple):
    """A table of labels.

    Attributes:
        joints: individual → its body parts; a table of single animals has one without a name.
        frames: those with a label.
    """

    joints: dict[str, tuple[str, ...]]
    frames: list[Frame]


def tables_of(place: Path) -> list[tuple[str, Path]]:
    """Return the tables of a project, of its ``labeled-data``, or of a folder of that.

    Returns:
        The folder of its images below ``place``, and the table; nothing where there is none.

    Raises:
        SourceError: a folder has several.
    """
    labels = place if place.name == _LABELS else place / _LABELS
    prefix = "" if place.name == _LABELS else f"{_LABELS}/"
    folders = [("", place)]
    if labels.is_dir():
        below = sorted((folder for folder in labels.iterdir() if folder.is_dir()), key=lambda folder: folder.name)
        folders += [(f"{prefix}{folder.name}/", folder) for folder in below]
    tables = []
    for before, folder in folders:
        found = [path for path in folder.iterdir() if path.name.startswith("CollectedData") and is_table(path)]
        if len(found) > 1:
            names = ", ".join(sorted(path.name for path in found))
            raise SourceError(f"{folder} holds {len(found)} tables of labels vs one: {names}; give one as the source")
        tables += [(before, path) for path in found]
    return tables


def is_table(path: Path) -> bool:
    """Return whether a file is a table, by its name."""
    return path.name.lower().endswith(".csv") and path.is_file()


def as_coco(place: Path) -> bytes:
    """Return the annotations of a table, or of a folder's tables, as JSON.

    The skeleton is that of the project's ``config.yaml``, as far as its names are body parts.

    Raises:
        SourceError: a table cannot be read, or differs from the others in its body parts.
    """
    tables = [("", place)] if place.is_file() else tables_of(place)
    joints: dict[str, tuple[str, ...]] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for prefix, path in tables:
        table = _read(path)
        for individual, parts in table.joints.items():
            if joints.setdefault(_category(individual), parts) != parts:
                other = ", ".join(joints[_category(individual)])
                raise SourceError(f"{path} has the body parts {', '.join(parts)} vs {other} of others; restore it")
        numbers = {name: number for number, name in enumerate(joints, start=1)}
        for frame in table.frames:
            images.append({"id": len(images) + 1, "file_name": f"{prefix}{frame.name}"})
            annotations += [
                {"image_id": len(images), "category_id": numbers[_category(individual)], "keypoints": keypoints}
                for individual, keypoints in frame.keypoints.items()
            ]
    skeleton = _skeleton(place)
    categories = [
        {"id": number, "name": name, "keypoints": parts, "skeleton": _limbs(skeleton, parts)}
        for number, (name, parts) in enumerate(joints.items(), start=1)
    ]
    numbered = [{"id": number, **annotation} for number, annotation in enumerate(annotations, start=1)]
    return json.dumps({"images": images, "annotations": numbered, "categories": categories}).encode()


def _category(individual: str) -> str:
    return individual if individual in ("", _SINGLE) else "individual"


def _read(path: Path) -> Table:
    with reading(str(path)):
        data = path.read_bytes()
    refuse_lfs_pointer(data, str(path))
    if len(data) > bounds.UNPACKED_FREE:
        raise SourceError(f"{path} has {len(data):,} bytes vs {bounds.UNPACKED_FREE:,} at most")
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path} is no CSV in UTF-8 ({error}); save it as such") from error
    header = {row[0]: row for row in rows[: len(_HEADER)] if row and row[0] in _HEADER}
    if not {"scorer", "bodyparts", "coords"} <= header.keys():
        found = ", ".join(printable(row[0] if row else "", 20) for row in rows[:3])
        raise SourceError(f"{path} is no table of DeepLabCut: rows {found} vs scorer, bodyparts, coords")
    columns = _columns(path, header)
    first = min(columns)
    frames: dict[str, Frame] = {}
    for number, row in enumerate(rows[len(header) :], start=len(header) + 1):
        if not any(cell.strip() for cell in row[first:]):
            continue
        where = f"{path}, line {number}"
        if len(row) != len(header["coords"]):
            raise SourceError(f"{where} has {len(row)} cells vs {len(header['coords'])} of the header; restore it")
        name = "/".join(row[:first]).replace("\\", "/").rpartition("/")[2]
        if name in frames:
            raise SourceError(f"{where}: {printable(name)} is there twice vs once; remove one of them")
        frames[name] = Frame(name, dict(_individuals(row, columns, where)))
    joints: dict[str, tuple[str, ...]] = {}
    for individual, part in columns.values():
        joints[individual] = (*joints.get(individual, ()), part)
    return Table(joints, [frame for frame in frames.values() if frame.keypoints])


def _columns(path: Path, header: dict[str, list[str]]) -> dict[int, tuple[str, str]]:
    """Return the column of each joint's x, which that of y follows: individual and body part."""
    coords = header["coords"]
    first = next((place for place in range(1, len(coords)) if coords[place]), 0)
    wanted = ["x", "y"] * ((len(coords) - first) // 2)
    if first not in _CELLS_OF_A_PATH or coords[first:] != wanted:
        raise SourceError(
            f"{path}: coords are {shortened(coords[1:])} vs x and y of each body part after 1 or 3 cells of a path; "
            "give labels, no predictions"
        )
    if any(len(row) != len(coords) for row in header.values()):
        raise SourceError(f"{path}: the rows of the header differ in length; restore it")
    individuals = header.get("individuals", [""] * len(coords))
    columns = {place: (individuals[place], header["bodyparts"][place]) for place in range(first, len(coords), 2)}
    following = [(individuals[place + 1], header["bodyparts"][place + 1]) for place in columns]
    if list(columns.values()) != following or len(set(following)) < len(following):
        raise SourceError(f"{path}: a body part has not one x and one y beside each other; restore the header")
    return columns


def _individuals(row: list[str], columns: dict[int, tuple[str, str]], where: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each individual that has a label in a frame, with its keypoints."""
    found: dict[str, list[float]] = {}
    for place, (individual, part) in columns.items():
        x, y = (_number(cell, f"{where}, {part}") for cell in row[place : place + 2])
        if (x is None) != (y is None):
            raise SourceError(f"{where}: {part} has one of x and y vs both or neither; complete it")
        found.setdefault(individual, []).extend(_NOWHERE if x is None or y is None else (x, y, _VISIBLE))
    for individual, keypoints in found.items():
        if any(keypoints[2::3]):
            yield individual, keypoints


def _number(cell: str, where: str) -> float | None:
    """Return a cell's number, or None where it is empty."""
    try:
        value = float(cell) if cell.strip() else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise SourceError(f"{where} is {shortened(cell)} vs a number, or an empty cell if it is not labelled")
    return None if math.isnan(value) else value


def _skeleton(place: Path) -> list[Any]:
    """Return the pairs of names that the project's settings join; none where there are no settings."""
    folder = place.parent if place.is_file() else place
    above = folder.parent
    root = above if folder.name == _LABELS else above.parent if above.name == _LABELS else folder
    config = root / "config.yaml"
    if not config.is_file():
        return []
    with reading(str(config)):
        data = config.read_bytes()
    refuse_lfs_pointer(data, str(config))
    if len(data) > bounds.CLASS_FILE_BYTES:
        raise SourceError(f"{config} has {len(data):,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most")
    try:
        settings = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SourceError(f"{config} is no YAML ({printable(error)}); restore it") from error
    pairs = settings.get("skeleton") if isinstance(settings, dict) else None
    return pairs if isinstance(pairs, list) else []


def _limbs(skeleton: list[Any], parts: tuple[str, ...]) -> list[list[int]]:
    """Return limbs as COCO counts joints, from 1 on; a new project's settings join parts that it does not have."""
    return [
        [parts.index(end) + 1 for end in pair]
        for pair in skeleton
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) and end in parts for end in pair)
    ]
