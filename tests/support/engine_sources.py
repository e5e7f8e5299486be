"""One small source of each kind that an engine converts, on the machine that starts the job."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from coco_files import CocoFiles
from drawn_images import as_folders, drawn, encoded, images
from mice import document, written
from raw_cifar import write_raw_cifar

from podline.stages.specs import ConvertSpec

KINDS = ("cifar", "coco", "images", "keypoints")


def specs(folder: Path, kind: str, **settings: Any) -> ConvertSpec:
    """Return a local conversion of a source of some kind, which is written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"root": str(folder / f"{kind} here"), "shard_bytes": 60_000, **_OF_KIND[kind](folder / kind)}
    return ConvertSpec.model_validate(given | settings)


def _cifar(folder: Path) -> dict[str, Any]:
    return {"dataset": "cifar10", "source": str(write_raw_cifar(folder, train=400))}


def _coco(folder: Path, *, zipped: bool = True) -> dict[str, Any]:
    CocoFiles("val", 4, 101).write(folder, zipped=zipped)
    source = CocoFiles("train", 10).write(folder, zipped=zipped)
    return {"dataset": "coco", "source": str(source), "side": 64, "max_people": 3}


def _images(folder: Path) -> dict[str, Any]:
    """Images of which some are nearly the same, and one is damaged."""
    classes = images()
    for number in range(0, 60, 3):
        small = drawn(number, (16 + number % 40, 60 - number % 37)) // 2 * 2
        classes["cat"][f"again{number}.bmp"] = encoded(small, "BMP")
    classes["cat"]["bad.jpg"] = b"\xff\xd8\xff\xe0"
    source = as_folders(folder, classes)
    return {"dataset": "images", "source": str(source), "side": 24, "near_share": 0.99, "test_share": 0.4}


def _keypoints(folder: Path) -> dict[str, Any]:
    return {"dataset": "keypoints", "source": str(written(folder, document())), "side": 64, "max_people": 2}


_OF_KIND = {
    "cifar": _cifar,
    "coco": _coco,
    "coco files": partial(_coco, zipped=False),
    "images": _images,
    "keypoints": _keypoints,
}
