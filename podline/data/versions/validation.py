"""The validation stage: compare a data set's files with its manifest.

It verifies each file's sha256. If a shard differs, it checks the frames, so that the error names the damaged record
and its byte offset. With ``deep`` it decodes every record and recomputes all statistics in the manifest.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from podline.base.errors import ArtifactError
from podline.base.progress import Reporter
from podline.data import tfrecord
from podline.data.identity import identities_of
from podline.data.people.truth import read_truth, truth_name
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.reader import HASHED_AT_ONCE, REMEDY, SplitReader, open_split, require_content
from podline.data.records import IMAGE, IMAGE_ID, stored_layout
from podline.documents.manifest import MANIFEST, FileInfo, Manifest, SplitInfo, listed_files, read_manifest, stored_name
from podline.documents.shard_table import ShardInfo
from podline.recipes.kind_table import facts_named
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import ValidateResult, ValidateSpec
from podline.store.contract import Listed, Store
from podline.store.opening import open_store
from podline.store.prefetch import in_order

if TYPE_CHECKING:
    from podline.data.record_table import Records

Counts = npt.NDArray[np.int64]


def validate(spec: ValidateSpec, reporter: Reporter) -> ValidateResult:
    """Verify a converted data set; this is the validation stage.

    Raises:
        ArtifactError: the data set differs from its manifest or, with ``deep``, its splits share an image.
        StoreError: the data set is missing, or cannot be read.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    found = manifest_sha256(store, spec.folder)
    if found != spec.manifest_sha256:
        raise ArtifactError(
            f"{store.where(spec.folder)}/{MANIFEST} has sha256 {found}, but had {spec.manifest_sha256} when it was "
            f"converted; {REMEDY}"
        )
    manifest = read_manifest(store, spec.folder)
    published = check_files(store, manifest, reporter)
    duplicates = check_records(store, spec.folder, manifest, reporter) if spec.deep else None
    result = ValidateResult(
        seconds=time.monotonic() - started,
        records=manifest.written,
        shards=sum(len(split.every_shard) for split in manifest.splits),
        duplicates_within=duplicates,
    )
    complete(store, spec.folder, spec, result, [f"{spec.folder}/{MANIFEST}"], published=published)
    return result


def check_files(store: Store, manifest: Manifest, reporter: Reporter) -> array[float]:
    """Verify the sha256 of a data set's shards and other files; return their publication times.

    Raises:
        ArtifactError: a file is missing or differs; the message has the file and both values, or for a damaged frame of
            a shard, the record and its byte.
        StoreError: a file cannot be read.
    """

    def checked(listed: tuple[FileInfo, Listed | None]) -> float:
        info, found = listed
        name = stored_name(manifest.folder, info.file)
        try:
            return require_content(store, name, found, info).published
        except ArtifactError:
            if found and isinstance(info, ShardInfo):
                tfrecord.check_records(store.local(name, found))  # raises an error that names the damaged record
            raise

    published, total = array("d"), sum(1 for _ in manifest.files)
    for time_of_file in in_order(checked, listed_files(store, manifest), max(store.parallel, HASHED_AT_ONCE)):
        published.append(time_of_file)
        reporter.progress(len(published), total, "files")
    return published


def check_records(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> int:
    """Decode every record, recompute all statistics in the manifest, and check that no image is in two splits.

    Returns:
        The number of records whose image occurs more than once in their split.

    Raises:
        ArtifactError: a target is invalid, a statistic differs, or two splits share an image.
        StoreError: a file cannot be read.
    """
    layout = stored_layout(manifest.fields)
    where = f"{store.where(folder)}/{MANIFEST}"
    if (layout.fields, layout.record_length) != (manifest.fields, manifest.record_length):
        raise ArtifactError(
            f"{where}: its fields have {layout.record_length} bytes in total vs {manifest.record_length} as the "
            f"record length; {REMEDY}"
        )
    readers = [open_split(store, folder, manifest, split.name) for split in manifest.splits]
    done, started, hashes, targets = 0, time.monotonic(), [], facts_named(manifest.kind).targets
    for split, reader in zip(manifest.splits, readers, strict=True):
        pixels, ids, of_images = [], [], []
        counts = np.zeros(len(manifest.class_names), np.int64)
        shards = split.every_shard
        of_shards = np.zeros((len(shards), shards.classes), np.int64)
        for shard, first, records in reader.chunks():
            images = records[IMAGE]
            if wrong := targets.check(records, manifest):
                file, record, byte = reader.locate(first + wrong[0])
                raise ArtifactError(
                    f"{store.where(folder)}/{file}: record {record}, at byte {byte}, {wrong[1]}; {REMEDY}"
                )
            pixels.append(pixel_sums(images))
            found = targets.census(records, len(counts))
            counts += found
            of_shards[shard] += found[: shards.classes]  # all classes, or none
            ids += records[IMAGE_ID].ravel().tolist() if IMAGE_ID in records else []
            of_images.append(identities_of(images))
            done += len(images)
            rate = done / (time.monotonic() - started)
            reporter.progress(done, manifest.written, "records", {"records/s": rate})
        hashes.append(np.concatenate(of_images))
        _check_split(where, split, add_up(pixels), counts, of_shards)
        if split.truth:
            _check_truth(store, folder, manifest, split.name, set(ids))
    return _check_images(store.where(folder), readers, hashes, _records_of_files(store, manifest))


def _check_split(where: str, split: SplitInfo, pixels: PixelSums, counts: Counts, of_shards: Counts) -> None:
    """Check a split's statistics against the manifest; the sums are exact, so values must be equal bit for bit.

    ``counts``: number of records of each class, (classes,); ``of_shards``: the same per shard, (shards, classes), if
    the manifest has these counts.
    """
    claims: list[tuple[str, Any, Any]] = [
        (f"{shard.file}: class counts", tuple(found.tolist()), shard.class_counts)
        for shard, found in zip(split.every_shard, of_shards, strict=True)
        if shard.class_counts
    ]
    of_split = f"split {split.name!r}:"
    claims.append((f"{of_split} class counts", tuple(counts.tolist()), split.class_counts))
    claims.append((f"{of_split} mean", pixels.mean, split.mean))
    claims.append((f"{of_split} standard deviation", pixels.std, split.std))
    for what, found, expected in claims:
        if found != expected:
            raise ArtifactError(f"{where}: {what} {found} in the records vs {expected} in the manifest; {REMEDY}")


def _check_truth(store: Store, folder: str, manifest: Manifest, split: str, written: set[int]) -> None:
    """Check that the file of true poses has exactly the images of its split."""
    judged = {image["id"] for image in read_truth(store, folder, manifest, split)["images"]}
    odd = sorted(judged ^ written)
    if odd:
        places = ["the records", truth_name(split)]
        there, lacking = places if odd[0] in written else places[::-1]
        where = f"{store.where(folder)}: split {split!r}"
        raise ArtifactError(f"{where}: image {odd[0]} is in {there}, but not in {lacking}; {REMEDY}")


def _records_of_files(store: Store, manifest: Manifest) -> list[Records | None]:
    """Return the records of each split if they store image files and the data set has a table of them; else None."""
    if not (manifest.records and any(field.fit for field in manifest.fields)):
        return [None] * len(manifest.splits)
    from podline.data.record_table import RecordTable  # noqa: PLC0415 (most data sets need no PyArrow here)

    table = RecordTable.of(store, manifest)
    return [table.records(split.name) for split in manifest.splits]


def _check_images(
    where: str,
    readers: Sequence[SplitReader],
    hashes: Sequence[npt.NDArray[np.bytes_]],
    records: Sequence[Records | None],
) -> int:
    """Return the number of records whose image repeats in their split; raise an error if two splits share an image.

    Similar images may become equal as JPEG files. So identities or digests of ``records`` with files must be equal too.
    """
    splits = zip(readers, hashes, records, strict=True)
    for (one, ours, of_one), (other, theirs, of_other) in itertools.combinations(splits, 2):
        for image in np.intersect1d(ours, theirs):
            here, there = np.flatnonzero(ours == image), np.flatnonzero(theirs == image)
            if not _share_an_image(of_one, here, of_other, there):
                continue
            at = [
                "record {1} of {0}".format(*reader.locate(int(places[0])))
                for reader, places in ((one, here), (other, there))
            ]
            raise ArtifactError(
                f"{where}: the same image is in two splits, {at[0]} and {at[1]}, so a training image would be tested; "
                "delete this folder and convert again"
            )
    counts = [np.unique(images, return_counts=True)[1] for images in hashes]
    return sum(int(of_split[of_split > 1].sum()) for of_split in counts)


def _share_an_image(one: Records | None, here: Counts, other: Records | None, there: Counts) -> bool:
    """Return whether records at some positions of two splits share an identity or digest; True without records."""
    if one is None or other is None:
        return True
    ours, theirs = one.some(here), other.some(there)
    return bool(np.isin(ours.keys, theirs.keys).any() or np.isin(ours.digests, theirs.digests).any())
