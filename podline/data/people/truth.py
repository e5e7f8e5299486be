"""Write and read the true poses of each converted split, with which evaluations compare.

The file ``truth-<split>.json`` next to the shards has COCO's own format (https://cocodataset.org/#format-data), in
pixels of the original images. It keeps keypoints, boxes and areas of the source, crowds included, so that pycocotools
computes the same metrics as from the source's file. Ids may differ, and every category is :data:`PERSON`. Images are
ordered by id, annotations as in the source. Only crowds and people without a joint keep their segmentation, since the
keypoint metric needs no other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from podline.base.errors import ArtifactError
from podline.data.people.image import PERSON, People
from podline.data.reader import require_content
from podline.documents.manifest import FileInfo, Manifest
from podline.documents.skeleton import Skeleton
from podline.store.contract import Store


def truth_name(split: str) -> str:
    """Return the name of a split's file in the data set's folder."""
    return f"truth-{split}.json"


def publish_truths(
    store: Store, folder: str, dataset: str, splits: Mapping[str, Iterable[People]], skeleton: Skeleton
) -> dict[str, FileInfo]:
    """Publish the true poses of each split in the data set's folder; return split → file.

    Raises:
        StoreError: the store cannot be written.
    """
    truths = {}
    for split, images in splits.items():
        name = truth_name(split)
        data = truth_of(images, skeleton, f"{dataset}, split {split}, as converted by Podline").encode()
        # Its checksum is verified before it is used again, as for shards.
        store.publish_bytes(f"{folder}/{name}", data, replace=True, flush=False)
        truths[split] = FileInfo(file=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return truths


def read_truth(store: Store, folder: str, manifest: Manifest, split: str) -> dict[str, Any]:
    """Read the true poses of a split, as the ``dataset`` of a :class:`pycocotools.coco.COCO`.

    Raises:
        ArtifactError: the data set has no such file, or the file has changed.
        StoreError: the file cannot be read.
    """
    info = manifest.split(split).truth
    if info is None:
        where = store.where(folder)
        raise ArtifactError(f"{where}: the split {split!r} has no file of true poses; convert the data again")
    name = f"{folder}/{info.file}"
    require_content(store, name, store.find(name), info)
    return json.loads(store.read_bytes(name))


def truth_of(images: Iterable[People], skeleton: Skeleton, description: str) -> str:
    """Return a COCO document of an annotated split as JSON, with one line per image and annotation.

    The category also has the OKS constants as ``sigmas``, an addition to COCO's format.
    """
    place = {joint: number for number, joint in enumerate(skeleton.annotated, start=1)}
    images = sorted(images, key=lambda image: image.id)
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
