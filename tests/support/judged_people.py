"""Two nights of a pose network on one small test set, as their evaluations leave them in a store."""

from __future__ import annotations

import json
from typing import Any

from ledger_entries import night, outcome

from podline.documents.ledger_entry import Data, Entry, Split
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.documents.metric import Metric
from podline.documents.shard_table import ShardTable
from podline.documents.skeleton import COCO, SKELETON
from podline.store import digests
from podline.store.contract import Store

IMAGES = 40
_JOINTS = 17


def _person(image: int) -> list[float]:
    return [value for joint in range(_JOINTS) for value in (20.0 + joint * 5 + image % 3, 30.0 + joint * 4, 2)]


def people_of(store: Store, found: tuple[int, int], astray: str = "") -> tuple[Entry, Entry]:
    """Two entries; in so many of the images, one person each, either network found that person.

    Args:
        store: that their files go to.
        found: by the first network, and by the second.
        astray: a joint that the second network puts elsewhere.
    """
    images = [{"id": image, "file_name": f"{image}.jpg", "width": 200, "height": 200} for image in range(1, IMAGES + 1)]
    truth = {
        "images": images,
        "annotations": [
            {
                "id": image["id"],
                "image_id": image["id"],
                "category_id": 1,
                "keypoints": _person(image["id"]),
                "num_keypoints": _JOINTS,
                "area": 8000.0,
                "bbox": [20, 30, 90, 70],
                "iscrowd": 0,
            }
            for image in images
        ],
        "categories": [{"id": 1, "name": "person", "supercategory": "person", "keypoints": [], "skeleton": []}],
    }
    text = json.dumps(truth).encode()
    folder = "datasets/coco_sample/0123456789abcdef"
    store.publish_bytes(f"{folder}/truth-test.json", text)
    info = FileInfo(file="truth-test.json", bytes=len(text), sha256=digests.of_bytes(text))
    split = SplitInfo(
        name="test",
        records=IMAGES,
        shards=ShardTable.of([]),
        class_counts=(),
        mean=(0.0,),
        std=(1.0,),
        truth=info,
    )
    manifest = Manifest(
        dataset="coco_sample",
        fingerprint="0123456789abcdef",
        record_length=1,
        fields=(),
        class_names=(),
        kind="pose",
        facts={SKELETON: COCO.model_dump(mode="json")},
        splits=(split,),
        source=(),
        converter={},
        read=IMAGES,
        written=IMAGES,
        quarantined=(),
    )
    store.publish_json(f"{folder}/manifest.json", manifest.model_dump(mode="json"))
    first, second = (_entry(store, number, people, astray if number else "") for number, people in enumerate(found))
    return first, second


def _entry(store: Store, number: int, found: int, astray: str) -> Entry:
    run = f"runs/coco_pose-{number:012x}"
    people: list[dict[str, Any]] = [
        {"image_id": image, "category_id": 1, "keypoints": _person(image), "score": 0.9}
        for image in range(1, found + 1)
    ]
    for person in people if astray else ():
        person["keypoints"][3 * COCO.annotated.index(astray)] += 150.0
    store.publish_json(f"{run}/people-test.json", people)
    store.publish_json(f"{run}/evaluation.json", {"run": number})
    share = found / IMAGES
    made = outcome(
        share,
        measure="ap",
        examples=IMAGES,
        metrics={"ap": Metric(value=share, low=share - 0.1, high=share + 0.1)},
        parts={joint: Metric(value=share, low=share - 0.1, high=share + 0.1) for joint in COCO.annotated},
        evaluation_sha256=store.sha256(f"{run}/evaluation.json"),
    )
    data = Data(
        dataset="coco_sample", fingerprint="0123456789abcdef", splits={"test": Split(records=IMAGES, sha256="0")}
    )
    return night(number, recipe="coco_pose", outcome=made, data=data)
