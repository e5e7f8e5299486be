"""The validation stage: holds a data set's files against its manifest.

Each file's sha256 is compared. Of a shard that differs, the frames are walked, so that damage has an address: which
record of which file, at which byte. With ``deep``, every record is decoded and all that the manifest says is computed
again.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.coco_truth import read_truth, truth_name
from podline.data.content import image_crcs, same_images
from podline.data.kept_jpegs import KeptLayout, stored_layout
from podline.data.open_shards import open_shard
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE, IMAGE_ID, LABEL, RecordLayout, limit_of, place_of
from podline.data.shards import CHUNK_BYTES
from podline.data.tfrecord import Bytes, count_records, damaged_record, payloads
from podline.documents.completion import Artifact
from podline.documents.manifest import MANIFEST, FileInfo, Manifest, ShardInfo, SplitInfo, read_manifest
from podline.errors import ArtifactError
from podline.progress import Reporter
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import ValidateResult, ValidateSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_REMEDY = "run `podline convert` again: it writes what is damaged anew, and nothing else"
_HASHED_AT_ONCE = 4


@dataclass(frozen=True)
class RecordFigures:
    """What the records of a shard, or of a split, turn out to hold; image ids are there in images of COCO."""

    pixels: PixelSums
    class_counts: npt.NDArray[np.int64]
    image_crcs: npt.NDArray[np.uint32]
    image_ids: npt.NDArray[np.int64]


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
            f"converted; {_REMEDY}"
        )
    manifest = read_manifest(store, spec.folder)
    duplicates = check_records(store, spec.folder, manifest, reporter) if spec.deep else None
    files = check_files(store, spec.folder, manifest, reporter)
    result = ValidateResult(
        seconds=time.monotonic() - started,
        records=manifest.written,
        shards=len(manifest.shards),
        duplicates_within=duplicates,
    )
    complete(store, spec.folder, spec, result, [*files, f"{spec.folder}/{MANIFEST}"])
    return result


def check_files(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> list[Artifact]:
    """Check the sha256 of a data set's shards and truths.

    Args:
        store: the store.
        folder: the data set's in it.
        manifest: what they should be.
        reporter: hears of every file that is checked.

    Returns:
        The files.

    Raises:
        ArtifactError: with the file, the record and both values.
        StoreError: a file cannot be read.
    """
    there = {found.name: found for found in store.listing(folder)}
    infos = [*manifest.shards, *(split.truth for split in manifest.splits if split.truth)]

    def checked(info: ShardInfo | FileInfo) -> Artifact:
        name = f"{folder}/{info.file}"
        found = there.get(name)
        if found is None:
            raise ArtifactError(f"{store.where(name)} is gone; {_REMEDY}")
        sha256 = store.sha256(name, found)
        if (found.bytes, sha256) != (info.bytes, info.sha256):
            if isinstance(info, ShardInfo):
                count_records(store.local(name, found))  # names the record that is damaged
            raise ArtifactError(
                f"{store.where(name)} has {found.bytes} bytes and sha256 {sha256} vs {info.bytes} bytes and "
                f"{info.sha256} in the manifest: another file; {_REMEDY}"
            )
        return Artifact(name=name, bytes=info.bytes, sha256=info.sha256, modified=found.published)

    files = []
    for file in in_order(checked, infos, max(store.parallel, _HASHED_AT_ONCE)):
        files.append(file)
        reporter.progress(len(files), len(infos), "files")
    return files


def check_records(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> int:
    """Decode every record and compute all that a manifest says again; hold its splits against each other.

    Args:
        store: the store.
        folder: the data set's in it.
        manifest: what the records should be.
        reporter: hears of every shard that is checked.

    Returns:
        Records whose image another record of the same split has as well.

    Raises:
        ArtifactError: with the file, the record and both values.
        StoreError: a file cannot be read.
    """
    layout = stored_layout(manifest.fields)
    if (layout.fields, layout.record_length) != (manifest.fields, manifest.record_length):
        raise ArtifactError(
            f"{store.where(folder)}/{MANIFEST}: fields and record length are not those of one layout; {_REMEDY}"
        )
    done, started, records, crcs = 0, time.monotonic(), 0, []
    for split in manifest.splits:
        parts = []
        for shard in split.shards:
            parts.append(_check_shard(store, f"{folder}/{shard.file}", shard, layout, len(manifest.class_names)))
            done, records = done + 1, records + shard.records
            rate = records / (time.monotonic() - started)
            reporter.progress(done, len(manifest.shards), "shards", {"records/s": rate})
        found = _together(parts)
        _check_split(store.where(folder), split, found)
        if split.truth:
            _check_truth(store, folder, manifest, split.name, found.image_ids)
        crcs.append(found.image_crcs)
    return _check_images(store, folder, manifest, crcs)


def _check_shard(
    store: Store, name: str, info: ShardInfo, layout: RecordLayout | KeptLayout, classes: int
) -> RecordFigures:
    path = store.local(name)
    decoded = layout.decoded if isinstance(layout, KeptLayout) else layout
    shard, parts = open_shard(path, layout, info.records), []
    step = max(1, CHUNK_BYTES // decoded.frame_length)
    for start in range(0, info.records, step):
        frames = shard.frames(start, min(start + step, info.records))
        for index, how in _wrong_values(frames, decoded, classes):
            raise damaged_record(path, start + index, shard.start(start + index), how)
        parts.append(_figures(frames, decoded, classes))
    figures = _together(parts)
    if info.class_counts:
        _check_equal(f"{path}: class counts", tuple(figures.class_counts.tolist()), info.class_counts)
    return figures


def _wrong_values(frames: Bytes, layout: RecordLayout, classes: int) -> Iterator[tuple[int, str]]:
    """Find what is wrong with records whose checksums are right: which, and how."""
    for part, expected in layout.constant_parts:
        between = payloads(frames)[:, part]
        for index in _wrong((between != np.frombuffer(expected, np.uint8)).any(axis=1)):
            yield index, f"has the bytes {between[index].tobytes().hex()} vs {expected.hex()} between its features"
    for field in layout.fields:
        if field.encoding == "varint":
            raw = frames[:, place_of(field)]
            for index in _wrong((raw[:, :-1] & 0x80 == 0).any(axis=1)):
                found = raw[index].tobytes().hex()
                yield index, f"has {field.name} in the bytes {found}: a varint that ends before byte {field.width}"
            values = layout.values(frames, field.name)
            limit = classes if field.name == LABEL else limit_of(field)
            for index in _wrong(values >= limit):
                yield index, f"has {field.name}={values[index]} vs 0 to {limit - 1}"


def _wrong(where: npt.NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(where).tolist()


def _figures(frames: Bytes, layout: RecordLayout, classes: int) -> RecordFigures:
    fields = {field.name: field for field in layout.fields}
    return RecordFigures(
        pixel_sums(layout.values(frames, IMAGE)),
        np.bincount(layout.values(frames, LABEL), minlength=classes),
        image_crcs(frames[:, place_of(fields[IMAGE])]),
        np.array(layout.values(frames, IMAGE_ID)).ravel() if IMAGE_ID in fields else np.empty(0, np.int64),
    )


def _together(parts: Sequence[RecordFigures]) -> RecordFigures:
    return RecordFigures(
        add_up(part.pixels for part in parts),
        np.sum([part.class_counts for part in parts], axis=0),
        np.concatenate([part.image_crcs for part in parts]),
        np.concatenate([part.image_ids for part in parts]),
    )


def _check_split(folder: str, split: SplitInfo, found: RecordFigures) -> None:
    """Check a split's totals; they are whole numbers, or made of such in one way, so they agree to the last bit."""
    where = f"{folder}/{MANIFEST}: split {split.name!r}"
    _check_equal(f"{where}: records", len(found.image_crcs), split.records)
    _check_equal(f"{where}: class counts", tuple(found.class_counts.tolist()), split.class_counts)
    _check_equal(f"{where}: mean", found.pixels.mean, split.mean)
    _check_equal(f"{where}: standard deviation", found.pixels.std, split.std)


def _check_truth(store: Store, folder: str, manifest: Manifest, split: str, image_ids: npt.NDArray[np.int64]) -> None:
    """Check that a split's people are judged by the very images that it has."""
    judged = {image["id"] for image in read_truth(store, folder, manifest, split)["images"]}
    written = set(image_ids.tolist())
    odd = sorted(judged ^ written)
    if odd:
        places = ["the records", truth_name(split)]
        there, lacking = places if odd[0] in written else places[::-1]
        where = f"{store.where(folder)}: split {split!r}"
        raise ArtifactError(f"{where}: image {odd[0]} is in {there}, but not in {lacking}; {_REMEDY}")


def _check_equal(what: str, found: Any, said: Any) -> None:
    if found != said:
        raise ArtifactError(f"{what} {found} in the records vs {said} in the manifest; {_REMEDY}")


def _check_images(store: Store, folder: str, manifest: Manifest, crcs: Sequence[npt.NDArray[np.uint32]]) -> int:
    """Count the images that are there more than once; between splits, one is an error."""
    edges = np.cumsum([0, *(split.records for split in manifest.splits)])

    @functools.cache
    def readers() -> list[SplitReader]:  # for few data sets: where no two images seem to be one, nothing is read
        return [open_split(store, folder, manifest, split.name) for split in manifest.splits]

    def read(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        parts = [
            reader.gather(positions[(positions >= start) & (positions < stop)] - start, [IMAGE])[IMAGE]
            for reader, (start, stop) in zip(readers(), itertools.pairwise(edges), strict=True)
        ]
        return np.concatenate(parts)  # in the order asked for, which is ascending

    repeated = 0
    for positions in same_images(np.concatenate(crcs), read):
        owners = np.searchsorted(edges, positions, side="right") - 1
        if len(set(owners.tolist())) > 1:
            first, other = positions[0], positions[int((owners != owners[0]).argmax())]
            places = [_place(readers(), edges, position) for position in (first, other)]
            raise ArtifactError(
                f"{store.where(folder)}: one image is in two splits, as {places[0]} and as {places[1]}: what is tested "
                "was trained on; delete this folder and convert again"
            )
        repeated += len(positions)
    return repeated


def _place(readers: Sequence[SplitReader], edges: npt.NDArray[np.int64], position: int) -> str:
    owner = int(np.searchsorted(edges, position, side="right")) - 1
    file, record, _byte = readers[owner].locate(position - int(edges[owner]))
    return f"record {record} of {file}"
