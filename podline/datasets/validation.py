"""The validation stage: reads every byte of a data set once and holds it against the manifest.

A shard is checked frame by frame before its checksum is compared, so that damage has an address: which record of which
file, at which byte.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.coco_truth import read_truth, truth_name
from podline.data.content import image_crcs, same_images
from podline.data.kept_jpegs import KeptLayout, KeptShard, stored_layout
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE, IMAGE_ID, LABEL, RecordLayout, limit_of, place_of
from podline.data.shards import CHUNK_BYTES
from podline.data.tfrecord import HEADER_BYTES, Bytes, header, payload_crcs, payloads, read_frames, stored_crcs
from podline.data.verified_files import SeenFile, look_at, note
from podline.documents.completion import Artifact
from podline.documents.manifest import MANIFEST, Manifest, ShardInfo, SplitInfo, read_manifest
from podline.errors import ArtifactError
from podline.progress import Reporter
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import ValidateResult, ValidateSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.store.page_cache import let_go, may_keep

_REMEDY = "run `podline convert` again: it writes what is damaged anew, and nothing else"


@dataclass(frozen=True)
class RecordFigures:
    """What the records of a shard, or of a split, turn out to hold; image ids are there in images of COCO."""

    pixels: PixelSums
    class_counts: npt.NDArray[np.int64]
    image_crcs: npt.NDArray[np.uint32]
    image_ids: npt.NDArray[np.int64]


def validate(spec: ValidateSpec, reporter: Reporter) -> ValidateResult:
    """Checks a converted data set; the validation stage.

    Raises:
        ArtifactError: it is not what its manifest says, or its splits share an image.
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
    duplicates = check_dataset(store, spec.folder, manifest, reporter)
    result = ValidateResult(
        seconds=time.monotonic() - started,
        records=manifest.written,
        shards=len(manifest.shards),
        duplicates_within=duplicates,
    )
    checked = [
        Artifact(name=f"{spec.folder}/{item.file}", bytes=item.bytes, sha256=item.sha256) for item in manifest.shards
    ]
    complete(store, spec.folder, spec, result, [*checked, f"{spec.folder}/{MANIFEST}"])
    return result


def check_dataset(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> int:
    """Checks a data set's shards against its manifest, and its splits against each other.

    Args:
        store: the store.
        folder: the data set's in it.
        manifest: what they should be.
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
    done, total, stays = 0, len(manifest.shards), may_keep(sum(shard.bytes for shard in manifest.shards))
    started, records, classes = time.monotonic(), 0, len(manifest.class_names)
    crcs = []
    verified: dict[str, tuple[str, SeenFile | None]] = {}
    for split in manifest.splits:
        parts = []
        for shard in split.shards:
            path = store.local(f"{folder}/{shard.file}")
            verified[shard.file] = shard.sha256, look_at(store, f"{folder}/{shard.file}")
            parts.append(check_shard(path, shard, layout, classes))
            if not stays:
                let_go(path)
            done, records = done + 1, records + shard.records
            reporter.progress(done, total, "shards", {"records/s": records / (time.monotonic() - started)})
        found = _together(parts)
        _check_split(store.where(folder), split, found)
        if split.truth:
            _check_truth(store, folder, manifest, split.name, found.image_ids)
        crcs.append(found.image_crcs)
    note(store, folder, verified)
    return _check_images(store, folder, manifest, crcs)


def check_shard(path: Path, shard: ShardInfo, layout: RecordLayout | KeptLayout, classes: int) -> RecordFigures:
    """Checks one shard against what the manifest says of it.

    Raises:
        ArtifactError: with the record and both values.
        StoreError: the file cannot be read.
    """
    decoded = layout.decoded if isinstance(layout, KeptLayout) else layout
    digest, parts, start = hashlib.sha256(), [], 0
    with ThreadPoolExecutor(1) as hashing:
        hashed = None
        for raw, frames in _blocks(path, shard, layout):
            if hashed is not None:
                hashed.result()  # what it was made of is about to be overwritten
            hashed = hashing.submit(digest.update, raw.data)
            _check_frames(path, frames, start, decoded, classes)
            parts.append(_findings(frames, decoded, classes))
            start += len(frames)
    if digest.hexdigest() != shard.sha256:
        raise ArtifactError(
            f"{path} has sha256 {digest.hexdigest()} vs {shard.sha256} in the manifest, though each of its records is "
            f"sound: they are other ones; {_REMEDY}"
        )
    findings = _together(parts)
    if shard.class_counts:
        _check_equal(f"{path}: class counts", tuple(findings.class_counts.tolist()), shard.class_counts)
    return findings


def _blocks(path: Path, shard: ShardInfo, layout: RecordLayout | KeptLayout) -> Iterator[tuple[Bytes, Bytes]]:
    """A shard's records, some at a time: as they are in the file, and as frames with pixels."""
    frame = layout.decoded.frame_length if isinstance(layout, KeptLayout) else layout.frame_length
    step = max(1, CHUNK_BYTES // frame)
    if isinstance(layout, RecordLayout):
        for frames in read_frames(path, layout.record_length, shard.records, step):
            yield frames, frames
        return
    kept = KeptShard(path, layout, shard.records)
    for start in range(0, shard.records, step):
        stop = min(start + step, shard.records)
        yield kept.raw(start, stop), kept.frames(start, stop)


def _check_frames(path: Path, frames: Bytes, first: int, layout: RecordLayout, classes: int) -> None:
    """Checks everything about records that can be wrong with one alone; ``first`` is the number of the first."""

    def damaged(index: int, how: str) -> ArtifactError:
        place = f"record {first + index}, at byte {(first + index) * layout.frame_length}"
        return ArtifactError(f"{path}: {place}, {how}; {_REMEDY}")

    head = np.frombuffer(header(layout.record_length), np.uint8)
    for index in _wrong((frames[:, :HEADER_BYTES] != head).any(axis=1)):
        found = frames[index, :HEADER_BYTES].tobytes().hex()
        raise damaged(index, f"starts with the bytes {found} vs {head.tobytes().hex()} for its length")
    made, stored = payload_crcs(frames), stored_crcs(frames)
    for index in _wrong(made != stored):
        raise damaged(index, f"has the masked CRC-32C {made[index]:08x} vs {stored[index]:08x} written after it")
    for part, expected in layout.constant_parts:
        between = payloads(frames)[:, part]
        for index in _wrong((between != np.frombuffer(expected, np.uint8)).any(axis=1)):
            found = between[index].tobytes().hex()
            raise damaged(index, f"has the bytes {found} vs {expected.hex()} between its features")
    for field in layout.fields:
        if field.encoding == "varint":
            raw = frames[:, place_of(field)]
            for index in _wrong((raw[:, :-1] & 0x80 == 0).any(axis=1)):
                found = raw[index].tobytes().hex()
                raise damaged(
                    index, f"has {field.name} in the bytes {found}: a varint that ends before byte {field.width}"
                )
            values = layout.values(frames, field.name)
            limit = classes if field.name == LABEL else limit_of(field)
            for index in _wrong(values >= limit):
                raise damaged(index, f"has {field.name}={values[index]} vs 0 to {limit - 1}")


def _wrong(where: npt.NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(where).tolist()


def _findings(frames: Bytes, layout: RecordLayout, classes: int) -> RecordFigures:
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
    """Checks a split's totals; they are whole numbers, or made of such in one way, so they agree to the last bit."""
    where = f"{folder}/{MANIFEST}: split {split.name!r}"
    _check_equal(f"{where}: records", len(found.image_crcs), split.records)
    _check_equal(f"{where}: class counts", tuple(found.class_counts.tolist()), split.class_counts)
    _check_equal(f"{where}: mean", found.pixels.mean, split.mean)
    _check_equal(f"{where}: standard deviation", found.pixels.std, split.std)


def _check_truth(store: Store, folder: str, manifest: Manifest, split: str, image_ids: npt.NDArray[np.int64]) -> None:
    """Checks that a split's people are judged by the very images that it has."""
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
    """Looks for images that are there more than once: an error between splits, a number within them."""
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
