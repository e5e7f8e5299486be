"""COCO annotations of each converted split, which evaluations are judged by.

A file ``truth-<split>.json`` beside the shards is in COCO's own format (https://cocodataset.org/#format-data), in the
images' own pixels, and holds every number of the source as it was, crowds included, so that pycocotools gives the
figures that it gives with the source's file. Images are in the order of their ids, an image's annotations in the
source's order. Outlines are there of crowds and of people without a joint only: the measure of keypoints needs none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from podline.data.sources.coco_annotations import PERSON
from podline.data.sources.coco_image import CocoImage
from podline.documents.manifest import FileInfo, Manifest
from podline.documents.skeleton import COCO, Skeleton
from podline.errors import ArtifactError
from podline.frozen import JsonObject
from podline.store.contract import Store, explained

_SKELETON = (
    (16, 14), (14, 12), (17, 15), (15, 13), (12, 13), (6, 12), (7, 13), (6, 7), (6, 8), (7, 9), (8, 10), (9, 11),
    (2, 3), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7),
)  # fmt: skip
_CATEGORY: JsonObject = {
    "supercategory": "person",
    "id": PERSON,
    "name": "person",
    "keypoints": COCO.annotated,
    "skeleton": _SKELETON,
}


def truth_name(split: str) -> str:
    """Return the file's name in the data set's folder."""
    return f"truth-{split}.json"


def publish_truths(
    store: Store, folder: str, dataset: str, splits: Mapping[str, Iterable[CocoImage]], skeleton: Skeleton
) -> dict[str, FileInfo]:
    """Publish each split's truth.

    Args:
        store: the store.
        folder: the data set's folder in it.
        dataset: the data set's name.
        splits: what is converted.
        skeleton: of the people.

    Returns:
        Split → its file.

    Raises:
        StoreError: the store cannot be written.
    """
    truths = {}
    with store.workspace("truth") as workspace:
        for split, images in splits.items():
            name, digest, size = truth_name(split), hashlib.sha256(), 0
            path = workspace / name
            with explained("write", path), path.open("wb") as stream:
                for line in truth_lines(images, skeleton, f"{dataset}, split {split}, as converted by Podline"):
                    data = line.encode()
                    stream.write(data)
                    digest.update(data)
                    size += len(data)
            # It is verified by its checksum before it is used again, as shards are.
            store.publish_file(path, f"{folder}/{name}", replace=True, flush=False)
            truths[split] = FileInfo(file=name, bytes=size, sha256=digest.hexdigest())
    return truths


def read_truth(store: Store, folder: str, manifest: Manifest, split: str) -> dict[str, Any]:
    """Read a split's truth, as :class:`pycocotools.coco.COCO` takes it for its ``dataset``.

    Args:
        store: the store.
        folder: the data set's folder in it.
        manifest: of the data set.
        split: ``train`` or ``test``.

    Raises:
        ArtifactError: the data set has none, or it is not what was written.
        StoreError: it cannot be read.
    """
    info = manifest.split(split).truth
    if info is None:
        where = store.where(folder)
        raise ArtifactError(f"{where}: the split {split!r} has no truth to judge people by; convert the data again")
    name = f"{folder}/{info.file}"
    data = store.read_bytes(name)
    found = hashlib.sha256(data).hexdigest()
    if found != info.sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {found} vs {info.sha256} in the manifest; convert the data again"
        )
    return json.loads(data)


def _category(skeleton: Skeleton) -> JsonObject:
    """Return the category of a truth, as ``categories`` of COCO's format holds it.

    That of other joints than COCO's has OKS's constants as well, which are no part of the format: ``sigmas``.
    """
    if skeleton == COCO:
        return _CATEGORY
    place = {joint: number for number, joint in enumerate(skeleton.annotated, start=1)}
    return {
        "supercategory": "",
        "id": PERSON,
        "name": skeleton.category,
        "keypoints": skeleton.annotated,
        "skeleton": [[place[first], place[second]] for first, second in skeleton.limbs if {first, second} <= {*place}],
        "sigmas": skeleton.sigmas,
    }


def truth_lines(images: Iterable[CocoImage], skeleton: Skeleton, description: str) -> Iterator[str]:
    """Yield the document, a line for each image and each annotation."""
    yield f'{{"info": {json.dumps({"description": description})},\n'
    yield f'"categories": [{json.dumps(_category(skeleton))}],\n'
    yield '"images": ['
    yield from _items(
        json.dumps({"id": image.id, "file_name": image.name, "width": image.width, "height": image.height})
        for image in images
    )
    yield '],\n"annotations": ['
    yield from _items(text for image in images for text in image.annotations)
    yield "]}\n"


def _items(texts: Iterable[str]) -> Iterator[str]:
    before = "\n"
    for text in texts:
        yield f"{before}{text}"
        before = ",\n"
