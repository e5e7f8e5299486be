"""Images with any number of labels, drawn or made of real ones, and sources of them in every layout."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drawn_images import encoded, write_tar

COLOURS = {"blue": (40, 60, 230), "green": (40, 200, 40), "red": (230, 40, 40)}


class Labelled(NamedTuple):
    """An image's name, its PNG file, its labels in any order, its split."""

    name: str
    data: bytes
    labels: Sequence[str]
    split: str


def drawn(count: int = 120, side: int = 16) -> list[Labelled]:
    """Noise with squares of up to three colours, each in a quarter of its own; a seventh of the images has none."""
    random, found = np.random.default_rng(5), list[Labelled]()
    for number in range(count):
        pixels = random.integers(0, 90, (side, side, 3)).astype(np.uint8)
        labels = [] if number % 7 == 0 else [name for name in COLOURS if random.random() < 0.45]
        for name, quarter in zip(labels, random.permutation(4), strict=False):
            row, column = quarter // 2 * side // 2, quarter % 2 * side // 2
            pixels[row + 1 : row + side // 2 - 1, column + 1 : column + side // 2 - 1] = COLOURS[name]
        found.append(
            Labelled(f"{number:04}.png", encoded(pixels), labels[::-1], "test" if number % 3 == 2 else "train")
        )
    return found


def as_files(folder: Path, images: Sequence[Labelled]) -> None:
    """The images, in a folder of their own."""
    (folder / "pictures").mkdir(parents=True)
    for image in images:
        (folder / "pictures" / image.name).write_bytes(image.data)


def _rows(folder: Path, images: Sequence[Labelled], labels: Callable[[Labelled], Any]) -> list[dict[str, Any]]:
    as_files(folder, images)
    return [{"file": f"pictures/{each.name}", "labels": labels(each), "split": each.split} for each in images]


def _as_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_json_lines(folder: Path, images: Sequence[Labelled]) -> None:
    """A list in each line."""
    rows = _rows(folder, images, lambda image: list(image.labels))
    (folder / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def as_joined(folder: Path, images: Sequence[Labelled], mark: str = "|") -> None:
    """A text in each row."""
    _as_csv(folder / "labels.csv", _rows(folder, images, lambda image: mark.join(image.labels)))


def as_commas(folder: Path, images: Sequence[Labelled]) -> None:
    """A text with commas in each row."""
    as_joined(folder, images, ", ")


def as_rows(folder: Path, images: Sequence[Labelled]) -> None:
    """A row for each label; the rows of an image do not follow each other."""
    rows = _rows(folder, images, lambda image: image.labels)
    several = [row | {"labels": label} for row in rows for label in row["labels"] or [""]]
    _as_csv(folder / "labels.csv", sorted(several, key=lambda row: row["labels"]))


def as_one_hot(folder: Path, images: Sequence[Labelled]) -> None:
    """A column for each label."""
    names = sorted({name for image in images for name in image.labels})
    rows = _rows(folder, images, lambda image: image.labels)
    _as_csv(
        folder / "labels.csv",
        [
            {"file": row["file"]} | {name: int(name in row["labels"]) for name in names} | {"split": row["split"]}
            for row in rows
        ],
    )


def as_parquet(folder: Path, images: Sequence[Labelled]) -> None:
    """Images and lists in one file, as Hugging Face writes them."""
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "image": [{"bytes": image.data, "path": image.name} for image in images],
            "labels": pa.array([list(image.labels) for image in images], pa.list_(pa.string())),
            "split": [image.split for image in images],
        }
    )
    pq.write_table(table, folder / "all.parquet")


def as_web_dataset(folder: Path, images: Sequence[Labelled]) -> None:
    """A list in each sample's JSON."""
    members = {}
    for image in images:
        key, said = image.name.partition(".")[0], {"labels": list(image.labels), "split": image.split}
        members |= {f"{key}.png": image.data, f"{key}.json": json.dumps(said).encode()}
    write_tar(folder / "all.tar", members)


LAYOUTS = (as_json_lines, as_joined, as_commas, as_rows, as_one_hot, as_parquet, as_web_dataset)
