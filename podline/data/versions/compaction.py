"""Rewrite a version of the user's own images into new shards without dead records, in the version's order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from podline.base.errors import SettingsError
from podline.base.progress import Reporter
from podline.data.identity import IDENTITY_BYTES, hexadecimal
from podline.data.planning import ShardPlan, plan_shards
from podline.data.reader import SplitReader, open_split
from podline.data.reasons import FORGOTTEN, Reason
from podline.data.record_table import RECORDS, Ids, RecordTable, in_shards, publish_records
from podline.data.records import EncodedLayout, stored_layout
from podline.data.shards import WrittenShard, write_shard
from podline.data.tfds import tfds_files, tfds_names
from podline.data.tfrecord import Bytes
from podline.data.versions.manifest_building import Written, written_splits
from podline.data.versions.publishing import publish_last
from podline.data.versions.record_names import NAMES, RecordNames, publish_names
from podline.documents.completion import artifact_of, completion_name, packed, read_completion
from podline.documents.manifest import (
    MANIFEST,
    Manifest,
    Quarantined,
    dead_share,
    has_many_shards,
    listed_files,
    read_manifest,
)
from podline.documents.manifest import shard_record as record_of
from podline.documents.versions import Version, publish_version, versions
from podline.recipes import datasets
from podline.recipes.kind_table import facts_named, text_targets
from podline.stages.specs import ConvertResult
from podline.stages.table import CONVERT
from podline.store import digests
from podline.store.contract import Store
from podline.store.locks import Waiting
from podline.store.one_writer import writing


def compact(
    store: Store, manifest: Manifest, least: float, reporter: Reporter, forgotten: Mapping[str, str] | None = None
) -> Version | None:
    """Publish a version with the same records in new shards; return None if the old version is compact enough.

    Args:
        store: the store of the data set.
        manifest: the manifest of the version.
        least: share of dead records, 0 … 1, at which the version is rewritten; one with many shards always is.
        reporter: reports the progress.
        forgotten: identity of each image to leave out → the reason; if not empty, the version is always rewritten.

    Raises:
        SettingsError: the data set has no versions, or a split would have no record.
        ArtifactError: a record is damaged.
        StoreError: the store cannot be read or written.
    """
    if not versions(store, manifest.dataset):
        raise SettingsError(
            f"data set {manifest.dataset} has no versions; give a data set of your own images, only these have versions"
        )
    store.sweep()
    is_compact = dead_share(manifest) < least and not has_many_shards(manifest)
    if not forgotten and (is_compact or not manifest.base):
        return None
    known = digests.of_json([manifest.fingerprint, "compacted", *sorted(forgotten or ())])[:16]
    older = {each.fingerprint for split in manifest.splits for each in split.older}
    above = manifest.folder.rpartition("/")[0]
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.using([f"{above}/{name}" for name in (known, manifest.fingerprint, *older)]))
        stack.enter_context(writing(store, f"{above}/{known}", f"compact of {manifest.folder}", Waiting(reporter)))
        removed = _write(store, manifest, known, forgotten or {}, reporter)
        known_versions = {one.fingerprint: one.content for one in versions(store, manifest.dataset)}
        content = known if removed else known_versions.get(manifest.fingerprint, manifest.fingerprint)
        version = Version(number=0, fingerprint=known, content=content, base=manifest.fingerprint, removed=removed)
        return publish_version(store, manifest.dataset, version)


def _write(store: Store, manifest: Manifest, known: str, forgotten: Mapping[str, str], reporter: Reporter) -> int:
    """Write the compacted version; return the number of records left out."""
    started, layout = time.monotonic(), stored_layout(manifest.fields)
    encoded = isinstance(layout, EncodedLayout)
    table = RecordTable.of(store, manifest)
    kept = {split.name: _kept(table, split.name, forgotten) for split in manifest.splits}
    sizes = {name: len(ids) for name, ids in kept.items()}
    if not all(sizes.values()):
        raise SettingsError(
            f"{manifest.dataset}: without the forgotten images the splits have {sizes} records, expected at least one "
            "each; add images"
        )
    frame = layout.frame_length
    if encoded:
        in_shards = sum(sum(split.every_shard.lengths) for split in manifest.splits)
        frame = max(frame, manifest.bytes // in_shards)
    limits = {name: int(manifest.converter[name]) for name in ("shard_bytes", "min_shards")}
    plans = plan_shards(datasets.find(manifest.dataset).base, sizes, frame, **limits)
    readers = {name: open_split(store, manifest.folder, manifest, name, reporter) for name in sizes}
    folder = f"{manifest.folder.rpartition('/')[0]}/{known}"
    shards = list[WrittenShard]()
    for done, plan in enumerate(plans, start=1):
        shards.append(_shard(store, folder, plan, manifest, readers[plan.split], kept[plan.split]))
        reporter.progress(done, len(plans), "shards")
    for reader in readers.values():
        reader.require_unchanged()
    _publish(store, manifest, known, written_splits(plans, shards), table, kept, forgotten)
    _complete(store, manifest, folder, len(plans), time.monotonic() - started)
    return manifest.written - sum(sizes.values())


def _kept(table: RecordTable, split: str, forgotten: Mapping[str, str]) -> Ids:
    """Return the positions of a split's records that are not forgotten, ascending."""
    keys = np.array([bytes.fromhex(image) for image in forgotten], f"S{IDENTITY_BYTES}")
    return np.flatnonzero(~np.isin(table.records(split).keys, keys))


def _shard(
    store: Store, folder: str, plan: ShardPlan, manifest: Manifest, reader: SplitReader, kept: Ids
) -> WrittenShard:
    layout = stored_layout(manifest.fields)
    decoded = layout.decoded

    def ids(frames: Bytes, start: int) -> Ids:
        return kept[plan.first + start : plan.first + start + len(frames)]

    def fill(frames: Bytes, start: int) -> None:
        decoded.fill(frames, reader.gather(ids(frames, start)))

    def files(frames: Bytes, start: int) -> Sequence[bytes]:
        return reader.files(ids(frames, start))

    with store.workspace("shard") as workspace:
        census = partial(facts_named(manifest.kind).targets.census, classes=len(manifest.class_names))
        written = write_shard(workspace / plan.file, plan, layout, census, fill, files)
        for file in written.info.files:
            store.publish_file(workspace / file.file, f"{folder}/{file.file}", replace=True, flush=False)
    store.publish_json(f"{folder}/{record_of(plan.file)}", written.model_dump(mode="json"), replace=True, flush=False)
    return written


def _publish(
    store: Store,
    manifest: Manifest,
    known: str,
    written: Mapping[str, Written],
    table: RecordTable,
    kept: Mapping[str, Ids],
    forgotten: Mapping[str, str],
) -> None:
    """Publish the table of records and the other files next to the shards; the manifest last."""
    folder = f"{manifest.folder.rpartition('/')[0]}/{known}"
    left_out = [each for name in written for each in _left_out(table, name, forgotten)]
    pixels = {name: part.pixels for name, part in written.items()}
    rows = [in_shards(table.of_split(name).take(kept[name]), part.shards) for name, part in written.items()]
    info = publish_records(store, folder, pa.concat_tables(rows), pixels)
    names = RecordNames(store, manifest)
    publish_names(store, folder, {name: names.of_split(name).take(ids) for name, ids in kept.items()})
    splits = [part.info(name, None) for name, part in written.items()]
    contents = {name: table.records(name).some(ids).content() for name, ids in kept.items()}
    changes = {
        "fingerprint": known,
        "splits": tuple(one.model_copy(update={"content": contents[one.name]}) for one in splits),
        "records": info,
        "base": "",
        "written": sum(map(len, kept.values())),
        "quarantined": (*manifest.quarantined, *left_out),
    }
    compacted = manifest.model_copy(update=changes)
    publish_last(store, compacted, tfds_files(compacted, _labels(manifest)))


def _left_out(table: RecordTable, split: str, forgotten: Mapping[str, str]) -> Iterator[Quarantined]:
    """Yield a ``Quarantined`` entry for each forgotten record of a split."""
    for image in hexadecimal(table.records(split).keys) if forgotten else ():
        if image in forgotten:
            yield Quarantined(split=split, record=image, reason=str(Reason(FORGOTTEN, forgotten[image])))


def _complete(store: Store, manifest: Manifest, folder: str, shards: int, seconds: float) -> None:
    """Write the version's completion record as of a conversion, so that the next conversion of the source reuses it."""
    record = read_completion(store, manifest.folder, CONVERT.name)
    compacted = read_manifest(store, folder)
    changes = {
        "seconds": seconds,
        "fingerprint": compacted.fingerprint,
        "folder": folder,
        "bytes": compacted.bytes,
        "written": compacted.written,
        "quarantined": len(compacted.quarantined),
        "splits": {split.name: split.records for split in compacted.splits},
        "shards_written": shards,
        "shards_reused": 0,
    }
    result = ConvertResult.model_validate({**record.result, **changes})
    names = [*tfds_names(_labels(manifest)), RECORDS, NAMES, MANIFEST]
    published = (found.published if found else 0.0 for _, found in listed_files(store, compacted))
    changed = {
        "result": result.model_dump(mode="json"),
        "artifacts": tuple(artifact_of(store, f"{folder}/{name}") for name in names),
        "published": packed(published),
    }
    document = record.model_copy(update=changed).model_dump(mode="json")
    store.publish_json(completion_name(folder, CONVERT.name), document, replace=True)


def _labels(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    fields = text_targets(manifest.kind).fields(manifest.class_names)
    return {field.name: field.class_names for field in fields if field.class_names}
