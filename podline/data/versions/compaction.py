"""Rewrite a version of the user's own images into new shards without dead records, in the version's order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from podline.base.arrays import Ids
from podline.base.errors import SettingsError
from podline.base.progress import Reporter
from podline.data.identity import IDENTITY_BYTES, hexadecimal
from podline.data.planning import ShardPlan, plan_shards
from podline.data.reader import SplitReader, open_split
from podline.data.reasons import FORGOTTEN, Reason
from podline.data.record_table import RECORDS, Records, RecordTable, publish_records
from podline.data.records import EncodedLayout, RecordLayout, stored_layout
from podline.data.shards import WrittenShard, publish_shard
from podline.data.tfds import tfds_files
from podline.data.tfrecord import Bytes
from podline.data.versions.growth import Growth, SplitGrowth
from podline.data.versions.manifest_building import Written, class_names_of, written_splits
from podline.data.versions.publishing import publish_last, result_of
from podline.data.versions.record_names import NAMES, RecordNames, publish_names
from podline.documents.completion import Completion, artifact_of, completion_name, packed, read_completion
from podline.documents.manifest import (
    MANIFEST,
    Manifest,
    Quarantined,
    dataset_folder,
    dead_share,
    has_many_shards,
    listed_files,
)
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
    """Publish a version with the same records, except forgotten ones, in new shards; return None if not needed.

    It is needed if images are ``forgotten``: identity of each image to leave out → the reason. Otherwise it is needed
    if the version uses shards of older versions, and has many shards or at least the share ``least`` of dead records:
    records that are in the shards but not in the version.

    Raises:
        SettingsError: the data set has no versions, or a split would have no record.
        ArtifactError: a record is damaged.
        StoreError: the store cannot be read or written, or the version has no completion record.
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
        removed = _Compaction(store, manifest, known, forgotten or {}, reporter).write()
        known_versions = {one.fingerprint: one.content for one in versions(store, manifest.dataset)}
        content = known if removed else known_versions.get(manifest.fingerprint, manifest.fingerprint)
        version = Version(number=0, fingerprint=known, content=content, base=manifest.fingerprint, removed=removed)
        return publish_version(store, manifest.dataset, version)


@dataclass(frozen=True)
class _Compaction:
    """Writes a version with the fingerprint ``known`` that has the records of the version with the manifest ``old``."""

    store: Store
    old: Manifest
    known: str
    forgotten: Mapping[str, str]
    reporter: Reporter

    @property
    def folder(self) -> str:
        return dataset_folder(self.old.dataset, self.known)

    def write(self) -> int:
        """Write the version; return the number of records that were left out of it."""
        started, table = time.monotonic(), RecordTable.of(self.store, self.old)
        record = read_completion(self.store, self.old.folder, CONVERT.name)  # before anything is written
        every = {split.name: table.records(split.name) for split in self.old.splits}
        keys = np.array([bytes.fromhex(image) for image in self.forgotten], f"S{IDENTITY_BYTES}")
        kept = {name: records.some(np.flatnonzero(~np.isin(records.keys, keys))) for name, records in every.items()}
        left_out = [found for name, records in every.items() for found in self._left_out(name, records)]
        sizes = {name: len(records.ids) for name, records in kept.items()}
        if not all(sizes.values()):
            raise SettingsError(
                f"{self.old.dataset}: without the forgotten images the splits have {sizes} records, expected at least "
                "one each; add images"
            )
        manifest, beside = self._publish(kept, self._write_shards(sizes, kept), left_out)
        self._complete(record, manifest, [*beside, RECORDS, NAMES, MANIFEST], time.monotonic() - started)
        return self.old.written - manifest.written

    def _left_out(self, split: str, records: Records) -> Iterator[Quarantined]:
        for image in hexadecimal(records.keys) if self.forgotten else ():
            if image in self.forgotten:
                yield Quarantined(split=split, record=image, reason=str(Reason(FORGOTTEN, self.forgotten[image])))

    def _write_shards(self, sizes: Mapping[str, int], kept: Mapping[str, Records]) -> dict[str, Written]:
        layout = stored_layout(self.old.fields)
        frame = layout.frame_length
        if isinstance(layout, EncodedLayout):
            in_shards = sum(sum(split.every_shard.lengths) for split in self.old.splits)
            frame = max(frame, self.old.bytes // in_shards)
        limits = {name: int(self.old.converter[name]) for name in ("shard_bytes", "min_shards")}
        plans = plan_shards(datasets.find(self.old.dataset).base, sizes, frame, **limits)
        readers = {name: open_split(self.store, self.old.folder, self.old, name, self.reporter) for name in sizes}
        shards = list[WrittenShard]()
        for plan in plans:
            shards.append(self._write_shard(plan, layout, readers[plan.split], kept[plan.split].ids))
            self.reporter.progress(len(shards), len(plans), "shards")
        for reader in readers.values():
            reader.require_unchanged()
        return written_splits(plans, shards)

    def _write_shard(
        self, plan: ShardPlan, layout: RecordLayout | EncodedLayout, reader: SplitReader, kept: Ids
    ) -> WrittenShard:
        mine = kept[plan.first : plan.first + plan.records]

        def fill(frames: Bytes, start: int) -> None:
            layout.decoded.fill(frames, reader.gather(mine[start : start + len(frames)]))

        def files(frames: Bytes, start: int) -> list[bytes]:
            return reader.files(mine[start : start + len(frames)])

        census = partial(facts_named(self.old.kind).targets.census, classes=len(self.old.class_names))
        return publish_shard(self.store, self.folder, plan, layout, census, fill, files)

    def _publish(
        self, kept: Mapping[str, Records], written: Mapping[str, Written], left_out: Sequence[Quarantined]
    ) -> tuple[Manifest, list[str]]:
        """Publish the files next to the shards, the manifest last; return the manifest and the names for TFDS."""
        splits = {name: SplitGrowth.rewritten(records, len(self.old.class_names)) for name, records in kept.items()}
        growth, names = Growth(self.known, None, None, None, splits, {}), RecordNames(self.store, self.old)
        rows = {name: names.of_split(name).take(records.ids) for name, records in kept.items()}
        publish_names(self.store, self.folder, rows)
        infos, sums = growth.infos(written, {})
        changes = {
            "fingerprint": self.known,
            "splits": infos,
            "records": publish_records(self.store, self.folder, growth.rows(written), sums),
            "base": "",
            "written": sum(info.records for info in infos),
            "quarantined": (*self.old.quarantined, *left_out),
        }
        manifest = self.old.model_copy(update=changes)
        labels = class_names_of(text_targets(manifest.kind).fields(manifest.class_names))
        beside = tfds_files(manifest, labels)
        publish_last(self.store, manifest, beside)
        return manifest, list(beside)

    def _complete(self, record: Completion, manifest: Manifest, names: Sequence[str], seconds: float) -> None:
        """Write a completion record like ``record``, the old version's; the next conversion then reuses the version."""
        result = ConvertResult.model_validate({**record.result, **result_of(manifest, seconds, reused=0)})
        published = (found.published if found else 0.0 for _, found in listed_files(self.store, manifest))
        changed = {
            "result": result.model_dump(mode="json"),
            "artifacts": tuple(artifact_of(self.store, f"{self.folder}/{name}") for name in names),
            "published": packed(published),
        }
        document = record.model_copy(update=changed).model_dump(mode="json")
        self.store.publish_json(completion_name(self.folder, CONVERT.name), document, replace=True)
