"""Convert DeepLabCut's labels, ``CollectedData_*.csv``, to annotations in COCO's format.

A table begins with the rows scorer, individuals (only with several animals), bodyparts and coords. Each further row is
a frame: the path of its image in one cell or in three, then x and y of each body part. An empty cell is an unlabelled
joint.
"""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from podline.base.errors import SourceError
from podline.data.images.table_rows import mark_of
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import reading
from podline.data.shown import printable, shortened

LABELS = "CollectedData"
"""The beginning of the names of DeepLabCut's tables."""
_FOLDER = "labeled-data"
_HEADER = ("scorer", "individuals", "bodyparts", "coords")
_HEADERS = 4  # largest number of header rows; they have all columns
_SINGLE = "single"  # the individual to which DeepLabCut assigns unique body parts


def tables_of(place: Path) -> list[tuple[str, Path]]:
    """Find the label tables of a DeepLabCut project, of its ``labeled-data``, or of a folder in that.

    Returns:
        For each table, the folder of its images relative to ``place`` and the table's path; empty if there are none.

    Raises:
        SourceError: a folder has more than one table.
    """
    labels = place if place.name == _FOLDER else place / _FOLDER
    folders = [place, *sorted(path for path in labels.glob("*") if path.is_dir())]
    tables = []
    for folder in folders:
        found = [path for path in folder.glob(f"{LABELS}*") if is_table(path)]
        if len(found) > 1:
            names = ", ".join(sorted(path.name for path in found))
            raise SourceError(f"{folder} has {len(found)} label tables, expected one: {names}; give one as the source")
        prefix = "" if folder == place else f"{folder.relative_to(place).as_posix()}/"
        tables += [(prefix, path) for path in found]
    return tables


def is_table(path: Path) -> bool:
    """Return whether a path is a CSV file."""
    return path.name.lower().endswith(".csv") and path.is_file()


def as_coco(place: Path) -> bytes:
    """Return the labels of a table, or of all tables in a folder, as a COCO document in JSON.

    The skeleton comes from the project's ``config.yaml``; limbs with unknown body parts are dropped. Frames without a
    labelled joint are omitted.

    Raises:
        SourceError: a table or ``config.yaml`` cannot be read, or body parts differ between tables or individuals.
    """
    categories: dict[str, tuple[str, ...]] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for prefix, path in [("", place)] if place.is_file() else tables_of(place):
        names, individuals = _read(path)
        for individual, (parts, _poses) in individuals.items():
            other = categories.setdefault(_category(individual), parts)
            if other != parts:
                raise SourceError(
                    f"{path} has the body parts {', '.join(parts)} vs {', '.join(other)} in other tables; "
                    "give tables with the same body parts"
                )
        for frame, name in enumerate(names):
            labelled = {each: poses[frame] for each, (_, poses) in individuals.items() if poses[frame, :, 2].any()}
            images += [{"id": len(images) + 1, "file_name": f"{prefix}{name}"}] if labelled else []
            for individual, keypoints in labelled.items():
                category = list(categories).index(_category(individual)) + 1
                one = {"id": len(annotations) + 1, "image_id": len(images), "category_id": category}
                annotations.append(one | {"keypoints": keypoints.ravel().tolist()})
    skeleton = _skeleton(place)
    named = [
        {"id": number, "name": name, "keypoints": parts, "skeleton": _limbs(skeleton, parts)}
        for number, (name, parts) in enumerate(categories.items(), start=1)
    ]
    return json.dumps({"images": images, "annotations": annotations, "categories": named}).encode()


def _category(individual: str) -> str:
    return individual if individual in ("", _SINGLE) else "individual"


def _read(path: Path) -> tuple[list[str], dict[str, tuple[tuple[str, ...], npt.NDArray[np.float64]]]]:
    """Read a table of labels.

    Returns:
        The file name of each frame's image; individual → its body parts, and its poses, float64 (frames, parts, 3): x,
        y, visibility; zeros for an unlabelled joint. Without individuals, the only key is empty.
    """
    refuse_lfs_pointer(path, str(path))
    with reading(path, "a table of DeepLabCut", "restore it"), path.open(encoding="utf-8-sig", newline="") as stream:
        lines = stream.readlines()
        table = csv.reader(lines, delimiter=mark_of(lines[:_HEADERS]), strict=True)
        rows = [[cell.strip() for cell in row] for row in table if any(map(str.strip, row))]
    width = max((len(row) - [*map(bool, reversed(row))].index(True) for row in rows[:_HEADERS]), default=0)
    rows = [row[:width] if not any(row[width:]) else row for row in rows]
    header = {row[0]: row for row in itertools.takewhile(lambda row: row[:1] and row[0] in _HEADER, rows)}
    if not {"bodyparts", "coords"} <= header.keys():
        found = ", ".join(printable(row[0] if row else "", 20) for row in rows[:3])
        raise SourceError(
            f"{path} is not a table of DeepLabCut: got rows that begin with {found}, expected scorer, bodyparts, "
            "coords; give a CollectedData_*.csv"
        )
    if len(widths := {len(row) for row in rows}) > 1:
        raise SourceError(
            f"{path} has rows of {min(widths)} and of {max(widths)} cells, expected rows of one length; restore it"
        )
    coords = header["coords"]
    first = coords.index("x") if "x" in coords else 0
    if not first or coords[first:] != ["x", "y"] * ((len(coords) - first) // 2):
        raise SourceError(
            f"{path}: coords are {shortened(coords[1:])}, expected x and y of each body part; give "
            "a table of labels, no predictions"
        )
    owners = header.get("individuals", [""] * len(coords))
    columns = list(zip(owners, header["bodyparts"], strict=True))[first:]
    joints = columns[::2]
    if joints != columns[1::2] or len(set(joints)) < len(joints):
        raise SourceError(f"{path}: a body part does not have one x and one y column side by side; restore the header")
    body = np.array(rows[len(header) :], dtype=object).reshape(-1, len(coords))
    names = [name.replace("\\", "/").rpartition("/")[2] for name in body[:, first - 1].tolist()]
    with reading(path, "a table of DeepLabCut", "write a number, or leave the cell empty"):
        places = np.where(body[:, first:] == "", "nan", body[:, first:]).astype(np.float64).reshape(len(body), -1, 2)
    unlabelled = np.isnan(places)
    for row, column in np.argwhere(unlabelled.sum(axis=-1) == 1):
        raise SourceError(
            f"{path}: {printable(names[row])} has only one of x and y of {joints[column][1]}; give both, or leave both "
            "empty"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{path}: {printable(twice)} occurs in two rows; remove one of them")
    poses, individuals = np.concatenate([np.where(unlabelled, 0, places), 2.0 * ~unlabelled[..., :1]], axis=-1), {}
    for individual in dict.fromkeys(owner for owner, _part in joints):
        parts = tuple(part for owner, part in joints if owner == individual)
        individuals[individual] = parts, poses[:, [owner == individual for owner, _part in joints]]
    return names, individuals


def _skeleton(place: Path) -> list[Any]:
    """Return the skeleton in the project's ``config.yaml``, as pairs of body parts; empty without the file."""
    folder = place.parent if place.is_file() else place
    labels = next((each for each in (folder, folder.parent) if each.name == _FOLDER), None)
    config = (labels.parent if labels else folder) / "config.yaml"
    if not config.is_file():
        return []
    refuse_lfs_pointer(config, str(config))
    with reading(config, "YAML"):
        settings = yaml.safe_load(config.read_bytes())
    pairs = settings.get("skeleton") if isinstance(settings, dict) else None
    return pairs if isinstance(pairs, list) else []


def _limbs(skeleton: list[Any], parts: tuple[str, ...]) -> list[list[int]]:
    """Return limbs as COCO's joint numbers, from 1 on; skip limbs with unknown parts, as in a new project's config."""
    return [
        [parts.index(end) + 1 for end in pair]
        for pair in skeleton
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) and end in parts for end in pair)
    ]
