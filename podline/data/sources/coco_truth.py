"""COCO annotations of each converted split, which evaluations are judged by.

A file ``truth-<split>.json`` beside the shards is in COCO's own format (https://cocodataset.org/#format-data), in the
images' own pixels, and holds every number of the source as it was, crowds included, so that pycocotools gives the
figures that it gives with the source's file. Images are in the order of their ids, an image's annotations in the
source's order. Outlines are there of crowds and of people without a joint only: the measure of keypoints needs none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from podline.data.sources.coco_annotations import PERSON
from podline.data.sources.coco_image import CocoImage
from podline.documents.manifest import FileInfo, Manifest
from podline.documents.skeleton import Skeleton
from podline.errors import ArtifactError
from podline.store.contract import Store


def truth_name(split: str) -> str:
    """Return the file's name in the data set's folder."""
    return f"truth-{split}.json"


def publish_truths(
    store: Store, folder: str, dataset: str, splits: Mapping[str, Iterable[CocoImage]], skeleton: Skeleton
) -> dict[str, FileInfo]:
    """Publish each split's truth in the data set's folder; return split → its file.

    Raises:
        StoreError: the store cannot be written.
    """
    truths = {}
    for split, images in splits.items():
        name = truth_name(split)
        data = truth_of(images, skeleton, f"{dataset}, split {split}, as converted by Podline").encode()
        # It is verified by its checksum before it is used again, as shards are.
        store.publish_bytes(f"{folder}/{name}", data, replace=True, flush=False)
        truths[split] = FileInfo(file=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return truths


def read_truth(store: Store, folder: str, manifest: Manifest, split: str) -> dict[str, Any]:
    """Read a split's truth from a data set's folder, as :class:`pycocotools.coco.COCO` takes it for its ``dataset``.

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


def truth_of(images: Iterable[CocoImage], skeleton: Skeleton, description: str) -> str:
    """Return the document, a line for each image and each annotation.

    The category has OKS's constants as well, which are no part of COCO's format: ``sigmas``.
    """
    images, place = list(images), {joint: number for number, joint in enumerate(skeleton.annotated, start=1)}
    category = {
        "supercategory": "",
        "id": PERSON,
        "name": skeleton.category,
        "keypoints": skeleton.annotated,
        "skeleton": [[place[first], place[second]] for first, second in skeleton.limbs if {first, second} <= {*place}],
        "sigmas": skeleton.sigmas,
    }
    listed = [{"id": one.id, "file_name": one.name, "width": one.width, "height": one.height} for one in images]
    lines = {
        "images": ",\n".join(map(json.dumps, listed)),
        "annotations": ",\n".join(text for image in images for text in image.annotations),
    }
    head = f'"info": {json.dumps({"description": description})},\n"categories": [{json.dumps(category)}]'
    return f"{{{head},\n" + ",\n".join(f'"{key}": [\n{text}]' for key, text in lines.items()) + "}\n"
