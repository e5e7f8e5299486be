"""A converted data set of a few drawn stick people, made without Beam: what the conversion stage publishes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from podline.data.coco_records import coco_tasks
from podline.data.coco_truth import publish_truths
from podline.data.draft import draft_of
from podline.data.fingerprint import source_of
from podline.data.manifest import Manifest, read_manifest
from podline.data.planning import plan_shards
from podline.data.shards import write_shard
from podline.data.sources.coco import CocoSource
from podline.data.sources.coco_sample import write_coco_sample
from podline.stages import ConvertSpec
from podline.storage import open_store


def publish_people(
    root: Path, *, train: int = 12, test: int = 7, side: int = 128, source: Path | None = None
) -> Manifest:
    """Draws people and puts them, converted, into a store, as ``datasets/coco_sample/<fingerprint>``.

    Args:
        root: of the store.
        train: images in the training split, about.
        test: images in the test split, about.
        side: of the square images.
        source: a folder in COCO's layout instead of drawn people.
    """
    source = source or write_coco_sample(root / "people", train=train, test=test)
    spec = ConvertSpec(root=str(root), dataset="coco_sample", source=str(source), side=side, max_people=8)
    store = open_store(root)
    found = source_of(spec, store)
    assert isinstance(found, CocoSource)
    draft = draft_of(spec, found)
    draft = dataclasses.replace(draft, truths=publish_truths(store, draft.folder, found))
    frame = draft.layout.frame_length
    plans = plan_shards(spec.dataset, found.sizes, frame, shard_bytes=5 * frame, min_shards=1)
    written = []
    with store.workspace("plan") as tables:
        for task in coco_tasks(found, plans, spec.seed, tables, threads=1, keep_jpeg=False):
            path = tables / task.plan.file
            written.append(
                write_shard(path, task.plan, draft.layout, len(found.class_names), task.filler(draft.layout), 1)
            )
            store.publish_file(path, f"{draft.folder}/{task.plan.file}", replace=True)
    for name, content in draft.documents(written).items():
        store.publish_bytes(f"{draft.folder}/{name}", content, replace=True)
    return read_manifest(store, draft.folder)
