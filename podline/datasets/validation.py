"""The validation stage: compares a data set's files with its manifest.

Each file's sha256 is compared. Of a shard that differs, the frames are walked, so that damage has an address: which
record of which file, at which byte. With ``deep``, every record is decoded and all that the manifest says is computed
again.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.arrays import Arrays
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.reader import HASHED_AT_ONCE, REMEDY, SplitReader, open_split, require_content
from podline.data.records import IMAGE, IMAGE_ID, stored_layout
from podline.data.sources.coco_truth import read_truth, truth_name
from podline.data.tfrecord import count_records
from podline.datasets.census import hashes_of
from podline.documents.manifest import (
    MANIFEST,
    FileInfo,
    Manifest,
    SplitInfo,
    listed_files,
    read_manifest,
    stored_name,
)
from podline.documents.shard_table import ShardInfo
from podline.errors import ArtifactError
from podline.kinds.table import kind_named
from podline.progress import Reporter
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import ValidateResult, ValidateSpec
from podline.store.contract import Listed, Store
from podline.store.opening import open_store
from podline.store.prefetch import in_order

Counts = npt.NDArray[np.int64]


def validate(spec: ValidateSpec, reporter: Reporter) -> ValidateResult:
    """Check a converted data set; the validation stage.

    Raises:
        ArtifactError: it is not what its manifest says, or, with ``deep``, its splits share an image.
        StoreError: it is not there, or cannot be read.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    found = manifest_sha256(store, spec.folder)
    if found != spec.manifest_sha256:
        raise ArtifactError(
            f"{store.where(spec.folder)}/{MANIFEST} has sha256 {found} vs {spec.manifest_sha256} when it was "
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
    """Check the sha256 of a data set's shards and of what lies beside them; return when each was published.

    Raises:
        ArtifactError: with the file, the record and both values.
        StoreError: a file cannot be read.
    """

    def checked(listed: tuple[FileInfo, Listed | None]) -> float:
        info, found = listed
        name = stored_name(manifest.folder, info.file)
        try:
            return require_content(store, name, found, info).published
        except ArtifactError:
            if found and isinstance(info, ShardInfo):
                count_records(store.local(name, found))  # names the record that is damaged
            raise

    published, total = array("d"), sum(1 for _ in manifest.files)
    for time_of_file in in_order(checked, listed_files(store, manifest), max(store.parallel, HASHED_AT_ONCE)):
        published.append(time_of_file)
        reporter.progress(len(published), total, "files")
    return published


def check_records(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> int:
    """Decode every record, compute all that a manifest says again, and compare its splits with each other.

    Returns:
        Records whose image another record of the same split has as well.

    Raises:
        ArtifactError: with the file, the record and both values.
        StoreError: a file cannot be read.
    """
    layout = stored_layout(manifest.fields)
    where = f"{store.where(folder)}/{MANIFEST}"
    if (layout.fields, layout.record_length) != (manifest.fields, manifest.record_length):
        raise ArtifactError(f"{where}: the fields do not add up to the record length; {REMEDY}")
    readers = [open_split(store, folder, manifest, split.name) for split in manifest.splits]
    done, started, hashes, targets = 0, time.monotonic(), [], kind_named(manifest.kind).targets()
    for split, reader in zip(manifest.splits, readers, strict=True):
        pixels, ids, of_images = [], [], []
        counts = np.zeros(len(manifest.class_names), np.int64)
        shards = split.every_shard
        of_shards, edges = np.zeros((len(shards), shards.classes), np.int64), np.cumsum([0, *shards.lengths])
        for first, records in reader.chunks():
            images = records[IMAGE]
            if wrong := targets.check(records, manifest):
                file, record, byte = reader.locate(first + wrong[0])
                raise ArtifactError(
                    f"{store.where(folder)}/{file}: record {record}, at byte {byte}, {wrong[1]}; {REMEDY}"
                )
            pixels.append(pixel_sums(images))
            for shard, part in _by_shard(edges, first, records):
                found = targets.census(part, len(counts))
                counts += found
                of_shards[shard] += found[: shards.classes]  # all of them, or none
            ids += records[IMAGE_ID].ravel().tolist() if IMAGE_ID in records else []
            of_images.append(hashes_of([images]))
            done += len(images)
            rate = done / (time.monotonic() - started)
            reporter.progress(done, manifest.written, "records", {"records/s": rate})
        hashes.append(np.concatenate(of_images))
        _check_split(where, split, add_up(pixels), counts, of_shards)
        if split.truth:
            _check_truth(store, folder, manifest, split.name, set(ids))
    return _check_images(store.where(folder), readers, hashes)


def _by_shard(edges: npt.NDArray[np.int64], first: int, records: Arrays) -> Iterator[tuple[int, Arrays]]:
    """Yield the shards that records come from, ``first`` being the first one's place, and their parts of them."""
    end = first + len(records[IMAGE])
    for shard in range(int(np.searchsorted(edges, first, "right")) - 1, int(np.searchsorted(edges, end))):
        part = slice(max(edges[shard], first) - first, min(edges[shard + 1], end) - first)
        yield shard, {name: values[part] for name, values in records.items()}


def _check_split(where: str, split: SplitInfo, pixels: PixelSums, counts: Counts, of_shards: Counts) -> None:
    """Check a split's totals; they are whole numbers, or made of such in one way, so they agree to the last bit.

    Args:
        where: the manifest.
        split: its split.
        pixels: of all records.
        counts: of each class.
        of_shards: the same in each shard, of as many classes as the manifest has counts of.
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
    for what, found, said in claims:
        if found != said:
            raise ArtifactError(f"{where}: {what} {found} in the records vs {said} in the manifest; {REMEDY}")


def _check_truth(store: Store, folder: str, manifest: Manifest, split: str, written: set[int]) -> None:
    """Check that a split's people are judged by the very images that it has."""
    judged = {image["id"] for image in read_truth(store, folder, manifest, split)["images"]}
    odd = sorted(judged ^ written)
    if odd:
        places = ["the records", truth_name(split)]
        there, lacking = places if odd[0] in written else places[::-1]
        where = f"{store.where(folder)}: split {split!r}"
        raise ArtifactError(f"{where}: image {odd[0]} is in {there}, but not in {lacking}; {REMEDY}")


def _check_images(where: str, readers: Sequence[SplitReader], hashes: Sequence[npt.NDArray[np.uint64]]) -> int:
    """Count the images that are there more than once, by each split's hashes; between splits, one is an error."""
    for (one, ours), (other, theirs) in itertools.combinations(zip(readers, hashes, strict=True), 2):
        shared = np.intersect1d(ours, theirs)
        if len(shared):
            at = [
                "record {1} of {0}".format(*reader.locate(int(np.flatnonzero(split == shared[0])[0])))
                for reader, split in ((one, ours), (other, theirs))
            ]
            raise ArtifactError(
                f"{where}: one image is in two splits, as {at[0]} and as {at[1]}: what is tested was trained on; "
                "delete this folder and convert again"
            )
    _, counts = np.unique(np.concatenate(hashes), return_counts=True)
    return int(counts[counts > 1].sum())
