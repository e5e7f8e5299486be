"""A converted data set of tiny images, written in milliseconds by the library's own record and shard code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from podline.data import tfrecord
from podline.data.identity import identities_of
from podline.data.pixels import pixel_sums
from podline.data.planning import plan_shards
from podline.data.record_table import publish_records, rows_of
from podline.data.records import IMAGE, LABEL, RecordLayout, label_feature, layout_of
from podline.data.shards import Fill, write_shard
from podline.documents.completion import Completion, artifact_of, completion_name, packed
from podline.documents.feature import Feature
from podline.documents.manifest import (
    MANIFEST,
    FileInfo,
    Manifest,
    SplitInfo,
    dataset_folder,
    listed_files,
    read_manifest,
    shard_record,
)
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.recipes.kind_table import facts_named
from podline.recipes.settings import ModelSettings, Recipe, ScheduleSettings
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ConvertResult, ValidateSpec
from podline.store.contract import Store
from podline.store.opening import open_store

FINGERPRINT = "0123456789abcdef"
CLASS_NAMES = ("dark", "stripes", "bright")


def drawn(count: int, seed: int, side: int = 8) -> dict[str, np.ndarray]:
    """Return ``image`` uint8 (n, side, side, 3) and ``label`` int64 (n,) of three classes that are learned soon."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(CLASS_NAMES), count)
    stripes = np.where(np.arange(side) % 2, 40, -40)[:, None, None]
    level = np.array([100, 128, 156])[labels][:, None, None, None]
    images = (
        level + np.where(labels[:, None, None, None] == 1, stripes, 0) + random.normal(0, 40, (count, side, side, 3))
    )
    return {"image": images.clip(0, 255).astype(np.uint8), "label": labels}


def small_recipe(**values: Any) -> Recipe:
    """A recipe that trains a linear model on it: 12 steps of 8 are an epoch of 96 examples."""
    usual = {
        "model": ModelSettings(kind="linear"),
        "batch_size": 8,
        "evaluation_batch_size": 16,
        "schedule": ScheduleSettings(kind="constant", learning_rate=0.01),
    }
    return Recipe(name="t", dataset="sample", **(usual | values))


def encoded(layout: RecordLayout, columns: Mapping[str, np.ndarray]) -> tfrecord.Bytes:
    """Records as sealed frames; ``columns`` has every feature's values."""
    frames = layout.frames(len(next(iter(columns.values()))))
    layout.fill(frames, columns)
    tfrecord.seal(frames)
    return frames


def filled_from(layout: RecordLayout, read: Callable[[int, int], Mapping[str, np.ndarray]]) -> Fill:
    """A filler of frames with the values that ``read(start, stop)`` gives."""

    def fill(frames: tfrecord.Bytes, start: int) -> Sequence[bytes]:
        layout.fill(frames, read(start, start + len(frames)))
        return ()

    return fill


def publish_dataset(
    root: Path | str,
    *,
    train: int = 96,
    test: int = 40,
    splits: dict[str, dict[str, np.ndarray]] | None = None,
    fingerprint: str = FINGERPRINT,
    class_names: tuple[str, ...] = CLASS_NAMES,
) -> Manifest:
    """Put a data set with several shards a split into a store, as ``datasets/sample/FINGERPRINT``."""
    splits = splits or {"train": drawn(train, 0), "test": drawn(test, 1)}
    # About a third of the test split in a shard, so that batches come from more than one.
    records = max(1, len(splits["test"]["label"]) // 3)
    return publish(root, "sample", class_names, splits, shard_records=records, fingerprint=fingerprint)


def publish(
    root: Path | str,
    dataset: str,
    class_names: tuple[str, ...],
    splits: dict[str, dict[str, np.ndarray]],
    *,
    shard_records: int,
    kind: str = "classification",
    fingerprint: str = FINGERPRINT,
    **of_manifest: Any,
) -> Manifest:
    """Put examples (field → array) into a store, in shards of about ``shard_records``."""
    store, folder = open_store(root), dataset_folder(dataset, fingerprint)
    columns = next(iter(splits.values()))
    features = {name: Feature(name, values.dtype.name, values.shape[1:]) for name, values in columns.items()}
    if class_names:
        features[LABEL] = label_feature(LABEL, class_names)
    layout = layout_of(features.values())
    sizes = {name: len(columns[IMAGE]) for name, columns in splits.items()}
    census = partial(facts_named(kind).targets.census, classes=len(class_names))
    shard_bytes = layout.frame_length * shard_records
    written = {name: [] for name in splits}
    for plan in plan_shards(dataset, sizes, layout.frame_length, shard_bytes=shard_bytes, min_shards=1):

        def read(start: int, stop: int, plan=plan) -> dict[str, np.ndarray]:
            part = slice(plan.first + start, plan.first + stop)
            return {name: values[part] for name, values in splits[plan.split].items()}

        with store.workspace("dataset") as work:
            shard = write_shard(work / plan.file, plan, layout, census, filled_from(layout, read))
            store.publish_file(work / plan.file, f"{folder}/{plan.file}", replace=True)
        store.publish_json(f"{folder}/{shard_record(plan.file)}", shard.model_dump(mode="json"), replace=True)
        written[plan.split].append(shard)
    count = sum(sizes.values())
    usual = {"source": (), "converter": {}, "read": count, "written": count, "quarantined": ()}
    manifest = Manifest(
        dataset=dataset,
        fingerprint=fingerprint,
        record_length=layout.record_length,
        fields=layout.fields,
        class_names=class_names,
        splits=tuple(_split(name, columns, written[name], census(columns)) for name, columns in splits.items()),
        records=publish_table(store, folder, class_names, splits),
        kind=kind,
        **(usual | of_manifest),
    )
    store.publish_json(f"{folder}/{MANIFEST}", manifest.model_dump(mode="json"), replace=True)
    record_conversion(store, folder, manifest)
    return manifest


def publish_table(
    store: Store, folder: str, class_names: tuple[str, ...], splits: Mapping[str, Mapping[str, np.ndarray]]
) -> FileInfo:
    """Puts the table of records that a conversion publishes beside the shards."""
    parts = []
    for name, columns in splits.items():
        keys = identities_of(columns[IMAGE])
        targets = [repr([columns[each][at].tolist() for each in columns if each != IMAGE]) for at in range(len(keys))]
        if class_names and LABEL in columns:
            targets = [class_names[label] for label in columns[LABEL].tolist()]
        digests = [sha256(key + text.encode()).digest()[:16] for key, text in zip(keys, targets, strict=True)]
        parts.append(
            rows_of(
                {
                    "split": name,
                    "key": pa.array([key.ljust(16, b"\0") for key in keys], pa.binary(16)),
                    "digest": pa.array(digests, pa.binary(16)),
                    "target": pa.array([text.encode() for text in targets], pa.binary()).dictionary_encode(),
                    "position": pa.array(range(len(keys)), pa.int64()),
                }
            )
        )
    sums = {name: pixel_sums(columns[IMAGE]) for name, columns in splits.items()}
    return publish_records(store, folder, pa.concat_tables(parts), sums)


def seal(root: Path | str, dataset: str = "sample", fingerprint: str = FINGERPRINT) -> Manifest:
    """Has the manifest say of the shards what they are now: as if the data had been converted so."""
    store, folder = open_store(root), dataset_folder(dataset, fingerprint)
    manifest = read_manifest(store, folder)

    def sealed(shard: ShardInfo) -> ShardInfo:
        file = store.local(f"{folder}/{shard.file}")
        frames = np.fromfile(file, np.uint8).reshape(shard.records, -1)
        tfrecord.seal(frames)
        frames.tofile(file)
        return shard.model_copy(update={"sha256": store.sha256(f"{folder}/{shard.file}")})

    splits = [
        split.model_copy(update={"shards": ShardTable.of(map(sealed, split.shards))}) for split in manifest.splits
    ]
    manifest = manifest.model_copy(update={"splits": tuple(splits)})
    store.publish_bytes(f"{folder}/{MANIFEST}", manifest.to_bytes(), replace=True)
    record_conversion(store, folder, manifest)
    return manifest


def validation_of(root: Path | str, dataset: str, fingerprint: str, *, deep: bool = False) -> ValidateSpec:
    """The validation of a data set that a store has."""
    sha256 = manifest_sha256(open_store(root), dataset_folder(dataset, fingerprint))
    named = {"root": str(root), "dataset": dataset, "fingerprint": fingerprint, "manifest_sha256": sha256}
    return ValidateSpec(**named, deep=deep)


def record_conversion(store: Store, folder: str, manifest: Manifest) -> None:
    """Leaves the completion record of a conversion that wrote what is there."""
    shards = [shard for split in manifest.splits for shard in split.shards]
    result = ConvertResult(
        seconds=0.0,
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        folder=folder,
        read=manifest.read,
        written=manifest.written,
        quarantined=len(manifest.quarantined),
        splits={split.name: split.records for split in manifest.splits},
        bytes=sum(shard.bytes for shard in shards),
        shards_written=len(shards),
        shards_reused=0,
    )
    record = Completion(
        stage="convert",
        spec_digest="",
        result=result.model_dump(mode="json"),
        artifacts=(artifact_of(store, f"{folder}/{MANIFEST}"),),
        published=packed(found.published for _, found in listed_files(store, manifest) if found),
    )
    store.publish_json(completion_name(folder, "convert"), record.model_dump(mode="json"), replace=True)


def _split(name: str, columns: dict[str, np.ndarray], shards: list, counts: np.ndarray) -> SplitInfo:
    pixels = columns["image"].astype(np.float64)
    return SplitInfo(
        name=name,
        records=len(columns[IMAGE]),
        shards=ShardTable.of(shard.in_manifest(len(shards)) for shard in shards),
        class_counts=tuple(counts.tolist()),
        mean=tuple(pixels.mean((0, 1, 2)).tolist()),
        std=tuple(pixels.std((0, 1, 2)).tolist()),
    )
