"""The census of a data set, two hashes per record, and comparisons of two data sets by their censuses.

A census takes megabytes instead of gigabytes. It is made once, when a run first compares its data with the previous
run's, and stays in the store when the data set is deleted.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.reader import open_split
from podline.data.records import IMAGE, IMAGE_ID, LABEL
from podline.documents.completion import completion_name, read_artifact, record_files
from podline.documents.ledger_entry import ChangedRecords, Data, SplitChange
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder, read_manifest
from podline.errors import ArtifactError, PodlineError, one_line
from podline.stages.table import VALIDATE
from podline.store.contract import Store

FOLDER = "ledger/data"
MOST_RECORDS, TOLD_RECORDS = 20, 6
"""Largest number of added, removed or changed records with names, in a change and in a sentence."""

COLUMNS = np.dtype([("images", "<u8"), ("answers", "<u8"), ("labels", "<i8"), ("ids", "<i8")])
"""The columns per record: a hash of the image's pixels, one of the other fields, the class (-1 without), and COCO's id
of the image (-1 for other data)."""
_DIGEST_BYTES = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)

Places = npt.NDArray[np.int64]
SplitCensus = npt.NDArray[Any]
"""The entries of all records, in the order of the split, (n,) of :data:`COLUMNS`."""
Census = Mapping[str, SplitCensus]
"""The splits of a data set by name."""
Change = dict[str, SplitChange] | str
"""The changes of a data set's splits by name, or the reason why they are unknown."""


class RecordChanges(NamedTuple):
    """The changes of a split, as ascending positions.

    Attributes:
        added: positions in the later split.
        removed: positions in the earlier split.
        relabelled: positions (before, after) of records with the same image and another target.
    """

    added: list[int]
    removed: list[int]
    relabelled: list[tuple[int, int]]


def census_of(store: Store, dataset: str, fingerprint: str) -> Census:
    """Return a data set's stored census, or make one, and store it if the data set was validated.

    Raises:
        StoreError: neither a census nor the data set exists, or it cannot be read.
        ArtifactError: the census or the data set is damaged.
    """
    stage = f"{dataset}-{fingerprint}"
    name = f"{FOLDER}/{stage}.npz"
    if not store.exists(name):
        folder = dataset_folder(dataset, fingerprint)
        taken = take(store, folder, read_manifest(store, folder))
        if store.exists(completion_name(folder, VALIDATE.name)):
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **taken)
            store.publish_bytes(name, buffer.getvalue())
            record_files(store, FOLDER, stage, [name])
        return taken
    try:
        with np.load(io.BytesIO(read_artifact(store, FOLDER, stage, name)), allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{store.where(name)} is not a census of a data set ({error}); delete it") from error


def take(store: Store, folder: str, manifest: Manifest) -> dict[str, SplitCensus]:
    """Make a census by reading every record of a data set."""
    return {split.name: _take(store, folder, manifest, split.name) for split in manifest.splits}


def _take(store: Store, folder: str, manifest: Manifest, split: str) -> SplitCensus:
    reader = open_split(store, folder, manifest, split)
    others = [field.name for field in manifest.fields if field.name != IMAGE]
    has_class = any((field.name, field.encoding) == (LABEL, "varint") for field in manifest.fields)
    census = np.full(len(reader), -1, COLUMNS)
    for first, records in reader.chunks():
        part = census[first : first + len(records[IMAGE])]
        part["images"] = hashes_of([records[IMAGE]])
        part["answers"] = hashes_of([records[name] for name in others])
        if IMAGE_ID in records:
            part["ids"] = records[IMAGE_ID].reshape(-1)
        if has_class:
            part["labels"] = records[LABEL]
    reader.require_unchanged()
    return census


def hashes_of(columns: list[np.ndarray]) -> npt.NDArray[np.uint64]:
    """Hash each record's values; among a million different records equal hashes are very unlikely."""
    rows = [np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8) for values in columns]

    def digests() -> Iterator[int]:
        for parts in zip(*rows, strict=True):
            found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            for part in parts:
                found.update(part.data)
            yield int.from_bytes(found.digest(), "little")

    return np.fromiter(digests(), np.uint64, len(rows[0]))


def changes(before: SplitCensus, after: SplitCensus) -> RecordChanges:
    """Compare a split before and after. The order of records is ignored; a repeated record counts repeatedly."""
    then, now = same_examples(before, after)
    gone, come = np.delete(np.arange(len(before)), then), np.delete(np.arange(len(after)), now)
    old, new = equal_pairs(before["images"][gone], after["images"][come])
    relabelled = zip(gone[old].tolist(), come[new].tolist(), strict=True)
    return RecordChanges(np.delete(come, new).tolist(), np.delete(gone, old).tolist(), list(relabelled))


def same_examples(before: SplitCensus, after: SplitCensus) -> tuple[Places, Places]:
    """Return the positions, in each of two splits, of the records that both have, image and target; as pairs, (n,).

    Among equal records, the first of one split is paired with the first of the other.
    """
    return equal_pairs(*(split["images"] * _ODD + split["answers"] for split in (before, after)))


def equal_pairs(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> tuple[Places, Places]:
    """Pair equal values, the first of one side with the first of the other, in the order of the second side."""
    _, which = np.unique(np.concatenate([before, after]), return_inverse=True)
    # Together with its number of earlier occurrences, a value is unique on each side.
    keys = [side + len(which) * _earlier(side) for side in np.split(which, [len(before)])]
    _, then, now = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    order = np.argsort(now)
    return then[order], now[order]


def _earlier(values: Places) -> Places:
    """Return the number of earlier occurrences of each value."""
    order = np.argsort(values, kind="stable")
    earlier = np.empty(len(values), np.int64)
    earlier[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return earlier


def change_between(store: Store, before: Data, after: Data) -> Change:
    """Compare two data sets, or return the reason why they cannot be compared."""
    try:
        folder = dataset_folder(after.dataset, after.fingerprint)
        names = read_manifest(store, folder).class_names if store.exists(f"{folder}/{MANIFEST}") else ()
        then, now = (census_of(store, after.dataset, data.fingerprint) for data in (before, after))
        return _differences(then, now, names)
    except PodlineError as error:
        return one_line(error)


def _differences(before: Census, after: Census, class_names: Sequence[str]) -> dict[str, SplitChange]:
    """Return the changes between two censuses by split, without unchanged splits."""
    nothing, found = np.empty(0, COLUMNS), {}
    for split in dict.fromkeys([*before, *after]):
        then, now = before.get(split, nothing), after.get(split, nothing)
        change = changes(then, now)
        if any(change):
            found[split] = SplitChange(
                added=_moved([_named(split, now, place) for place in change.added]),
                removed=_moved([_named(split, then, place) for place in change.removed]),
                relabelled=_moved(
                    [
                        f"{_named(split, now, new)}{_labels(then[old], now[new], class_names)}"
                        for old, new in change.relabelled
                    ]
                ),
            )
    return found


def in_words(change: SplitChange) -> str:
    """Describe a split's change: ``2 added (train[3], train[7]); 1 relabelled (train[5] cat → dog)``."""
    return "; ".join(_told(moved, what) for what, moved in change if moved.count)


def _told(moved: ChangedRecords, what: str) -> str:
    told = moved.records[:TOLD_RECORDS]
    more = moved.count - len(told)
    return f"{moved.count:,} {what} ({', '.join(told)}{f' and {more:,} more' if more else ''})"


def _moved(records: Sequence[str]) -> ChangedRecords:
    return ChangedRecords(count=len(records), records=tuple(records[:MOST_RECORDS]))


def _named(split: str, census: SplitCensus, place: int) -> str:
    image = int(census["ids"][place])
    return f"{split}[{place}]" if image < 0 else f"{split}[{place}] image {image}"


def _labels(then: Any, now: Any, class_names: Sequence[str]) -> str:
    labels = [int(record["labels"]) for record in (then, now)]
    if labels[0] == labels[1]:
        return ""  # people, or a second label
    old, new = (class_names[label] if 0 <= label < len(class_names) else str(label) for label in labels)
    return f" {old} → {new}"
