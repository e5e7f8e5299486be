"""Publish a converted data set: the files next to its shards, its manifest, its completion record, its version.

They are written in this order, so the next conversion completes the work of one that was killed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from podline.base.errors import PermanentError, StoreUnavailableError
from podline.base.progress import Reporter
from podline.data.planning import ShardPlans
from podline.data.record_table import publish_records
from podline.data.shards import WrittenShard
from podline.data.sources.source import Source
from podline.data.tfds import tfds_files
from podline.data.versions.fingerprint import EffectiveSpec
from podline.data.versions.growth import Growth, fitting_base, growth_of
from podline.data.versions.manifest_building import class_names_of, manifest_of, written_splits
from podline.data.versions.record_names import NAMES, publish_names
from podline.documents.manifest import (
    MANIFEST,
    FileInfo,
    Manifest,
    dataset_folder,
    has_many_shards,
    listed_files,
    publish_manifest,
    read_manifest,
    shard_record,
)
from podline.documents.reading import read_model
from podline.documents.versions import Version, extension, publish_version, versions
from podline.stages.completed import complete
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store.contract import Store
from podline.store.prefetch import in_order


@contextlib.contextmanager
def growth_since(
    store: Store, spec: EffectiveSpec, source: Source, known: str, job: str, reporter: Reporter
) -> Iterator[Growth]:
    """Yield the plan of the version with the fingerprint ``known``; older versions are not deleted during the body.

    If :attr:`Source.grows`, records of an older version, the base, are reused; otherwise all are written. If the new
    version already has a manifest, the base named there is used again, because runs refer to the manifest by its
    digest. If the base has many shards, all records are rewritten to limit their number; that needs no decoding.
    """
    if not source.grows:
        yield growth_of(store, source, known, None, None)
        return
    dataset, folder = spec.dataset, dataset_folder(spec.dataset, known)
    found = dict.fromkeys(version.fingerprint for version in reversed(versions(store, dataset)))
    others = bases = [other for other in found if other != known]
    if again := store.exists(f"{folder}/{MANIFEST}"):
        with contextlib.suppress(PermanentError):
            bases = [base for base in (read_manifest(store, folder).base,) if base]
    with store.using([dataset_folder(dataset, other) for other in {*others, *bases}]):
        base = fitting_base(store, spec, source, iter(bases))
        if base:
            store.publish_bytes(extension(job, base.folder), b"", replace=True)
        before = base if others[:1] == bases[:1] else fitting_base(store, spec, source, iter(others))
        if base and before is base and not again and has_many_shards(base):
            reporter.log(f"all records will be written: version {base.fingerprint} has many small shards")
            base = None
        growth = growth_of(store, source, known, base, before)
        if growth.before:
            changed = ", ".join(f"{count:,} {what}" for what, count in growth.changes.items() if count)
            reporter.log(f"since version {growth.before.fingerprint}: {changed or 'the same records'}")
        elif others:
            reporter.log("all records will be written: no older version has the same settings, classes and fields")
        yield growth


def publish_dataset(
    store: Store,
    spec: ConvertSpec,
    source: Source,
    truths: Mapping[str, FileInfo],
    folder: str,
    plans: ShardPlans,
    growth: Growth,
) -> list[str]:
    """Publish the files next to the shards, the manifest last; return their names.

    The files for TFDS are published only if no older version's shards are used: TFDS reads a single folder.
    """
    names = (f"{folder}/{shard_record(plan.file)}" for plan in plans)

    def written_shard(name: str) -> WrittenShard:
        return read_model(store, name, WrittenShard, "a shard's record", "delete it and convert again")

    shards = in_order(written_shard, names, store.parallel)
    written, base = written_splits(plans, shards), growth.base.fingerprint if growth.base else ""
    publish_names(store, folder, source.names())
    splits, sums = growth.infos(written, truths)
    table = publish_records(store, folder, growth.rows(written), sums)
    if base and not store.exists(f"{dataset_folder(spec.dataset, base)}/{MANIFEST}"):
        raise StoreUnavailableError(
            f"version {base} of {spec.dataset}, whose shards this version uses, was deleted meanwhile, so no "
            "version was published; convert again: that writes all records"
        )
    manifest = manifest_of(spec, source, splits, table, base)
    beside = {} if base else tfds_files(manifest, class_names_of(source.features))
    publish_last(store, manifest, beside)
    return [*beside, table.file, NAMES, MANIFEST]


def publish_last(store: Store, manifest: Manifest, beside: Mapping[str, bytes]) -> None:
    """Publish ``beside`` (file name → content) in a data set's folder; flush the folder, then publish the manifest."""
    folder = manifest.folder
    for name, content in beside.items():
        store.publish_bytes(f"{folder}/{name}", content, replace=True)
    store.flush(found.name for found in store.listing(folder))
    publish_manifest(store, manifest)


def complete_conversion(
    store: Store, spec: ConvertSpec, folder: str, beside: list[str], source: Source, seconds: float, reused: int
) -> ConvertResult:
    """Write the completion record of a conversion, and return its result."""
    manifest = read_manifest(store, folder)
    facts = {"official": source.official, "contradicting": dict(source.contradicting)}
    result = ConvertResult(**result_of(manifest, seconds, reused), **facts)
    published = (found.published if found else 0.0 for _, found in listed_files(store, manifest))
    complete(store, folder, spec, result, beside, published=published)
    return result


def result_of(manifest: Manifest, seconds: float, reused: int) -> dict[str, Any]:
    """Return the fields of a conversion's result that follow from the manifest, its duration and the reused shards."""
    return {
        "seconds": seconds,
        "dataset": manifest.dataset,
        "fingerprint": manifest.fingerprint,
        "folder": manifest.folder,
        "read": manifest.read,
        "written": manifest.written,
        "quarantined": len(manifest.quarantined),
        "splits": {split.name: split.records for split in manifest.splits},
        "bytes": manifest.bytes,
        "shards_written": sum(len(split.shards) for split in manifest.splits) - reused,
        "shards_reused": reused,
    }


def publish_growth(store: Store, dataset: str, growth: Growth, reporter: Reporter) -> None:
    """Publish a converted data set as the next version of ``dataset``; the newest version is not published again."""
    base = growth.before.fingerprint if growth.before else ""
    known, changes = growth.fingerprint, dict(growth.changes)
    version = Version(number=0, fingerprint=known, content=known, base=base, **changes)
    published = publish_version(store, dataset, version)
    reporter.log(f"published as version {published.number}: {dataset}@{published.number}")


def delete_orphans(store: Store, folder: str) -> None:
    """Delete shards in a finished folder that its manifest lacks: killed conversions with other bases left them.

    The caller must be the only writer of the folder.
    """
    shards = [shard for split in read_manifest(store, folder).splits for shard in split.shards]
    kept = {f"{folder}/{shard_record(shard.file)}" for shard in shards}
    kept |= {f"{folder}/{file.file}" for shard in shards for file in shard.files}
    orphans = (
        file
        for file in store.listing(folder)
        if ".tfrecord-" in file.name.removeprefix(folder) and file.name not in kept
    )
    deque(in_order(lambda file: store.delete(file.name, file.version), orphans, store.parallel), maxlen=0)
