"""The census of a data set: two hashes for each record, by which data sets are compared.

A census is a few megabytes where the data are gigabytes. It is taken once, when a run first wants to know what changed
since the one before, and kept in the store, where it outlives the data set.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.reader import open_split
from podline.data.records import IMAGE, IMAGE_ID, LABEL
from podline.documents.completion import completion_name, read_artifact, record_files
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.errors import ArtifactError
from podline.stages.table import VALIDATE
from podline.store.contract import Store

FOLDER = "ledger/data"
_DIGEST_BYTES = 8


@dataclass(frozen=True)
class SplitCensus:
    """One entry a record, in the order of the split, each of shape (n,).

    Attributes:
        images: a hash of the image's pixels, uint64.
        answers: a hash of all else that the record holds, uint64.
        labels: the class; -1 where records have none that means anything, int64.
        ids: COCO's id of the image; -1 for other data, int64.
    """

    images: npt.NDArray[np.uint64]
    answers: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)


Census = Mapping[str, SplitCensus]
"""A data set's splits by name."""


class Relabelled(NamedTuple):
    """A record whose image is the same: its positions in the split before and after."""

    before: int
    after: int


class RecordChanges(NamedTuple):
    """What became of a split: positions, ascending.

    Attributes:
        added: in the split after.
        removed: in the split before.
        relabelled: in both.
    """

    added: list[int]
    removed: list[int]
    relabelled: list[Relabelled]


def census_of(store: Store, dataset: str, fingerprint: str) -> Census:
    """Return a data set's census: the one that is kept, or one taken now, and kept if the data set was validated.

    Raises:
        StoreError: there is neither a census nor the data set, or it cannot be read.
        ArtifactError: one of them is damaged.
    """
    stage = f"{dataset}-{fingerprint}"
    name = f"{FOLDER}/{stage}.npz"
    if not store.exists(name):
        folder = dataset_folder(dataset, fingerprint)
        taken = take(store, folder, read_manifest(store, folder))
        if store.exists(completion_name(folder, VALIDATE.name)):
            store.publish_bytes(name, _to_bytes(taken))
            record_files(store, FOLDER, stage, [name])
        return taken
    try:
        return _from_bytes(read_artifact(store, FOLDER, stage, name))
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{store.where(name)} is no census of a data set ({error}); delete it") from error


def take(store: Store, folder: str, manifest: Manifest) -> Census:
    """Read every record of a data set."""
    return {split.name: _take(store, folder, manifest, split.name) for split in manifest.splits}


def _take(store: Store, folder: str, manifest: Manifest, split: str) -> SplitCensus:
    reader = open_split(store, folder, manifest, split)
    others = [field.name for field in manifest.fields if field.name != IMAGE]
    images, answers, labels, ids = [], [], [], []
    for _first, records in reader.chunks():
        images.append(_hashes([records[IMAGE]]))
        answers.append(_hashes([records[name] for name in others]))
        nothing = np.full(len(images[-1]), -1, np.int64)
        ids.append(records[IMAGE_ID].reshape(-1) if IMAGE_ID in records else nothing)
        labels.append(nothing if IMAGE_ID in records else records[LABEL])
    reader.require_unchanged()
    return SplitCensus(*map(np.concatenate, (images, answers, labels, ids)))


def _hashes(columns: list[np.ndarray]) -> npt.NDArray[np.uint64]:
    """Hash each record's values; of a million different records hardly ever two have one hash."""
    rows = [np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8) for values in columns]

    def digests() -> Iterator[int]:
        for parts in zip(*rows, strict=True):
            found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            for part in parts:
                found.update(part.data)
            yield int.from_bytes(found.digest(), "little")

    return np.fromiter(digests(), np.uint64, len(rows[0]))


def changes(before: SplitCensus, after: SplitCensus) -> RecordChanges:
    """Compare a split before and after. The order of records does not matter; one that is there twice counts twice."""
    gone, come = _without_equals(before, after)
    by_image: dict[int, list[int]] = defaultdict(list)
    for place in reversed(gone):
        by_image[int(before.images[place])].append(place)
    relabelled, added = [], []
    for place in come:
        same_image = by_image.get(int(after.images[place]))
        if same_image:
            relabelled.append(Relabelled(same_image.pop(), place))
        else:
            added.append(place)
    removed = sorted(place for places in by_image.values() for place in places)
    return RecordChanges(added, removed, relabelled)


def same_examples(before: SplitCensus, after: SplitCensus) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions, in each of two splits, of the records that both have, image and answer; as pairs, (n,).

    Of records that are equal, the first of one is the first of the other.
    """
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, key in reversed(list(enumerate(_keys(before)))):
        places[key].append(place)
    pairs = [(places[key].pop(), place) for place, key in enumerate(_keys(after)) if places.get(key)]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _keys(split: SplitCensus) -> Iterator[tuple[int, int]]:
    return zip(split.images.tolist(), split.answers.tolist(), strict=True)


def _without_equals(before: SplitCensus, after: SplitCensus) -> tuple[list[int], list[int]]:
    """Return the positions of the records that only one of the two has."""
    there, here = Counter(_keys(before)), Counter(_keys(after))
    return _beyond(before, there - here), _beyond(after, here - there)


def _beyond(split: SplitCensus, surplus: Counter[tuple[int, int]]) -> list[int]:
    left = Counter(surplus)
    found = []
    # Of equal records, the last are the ones too many.
    for place, key in reversed(list(enumerate(_keys(split)))):
        if left[key] > 0:
            left[key] -= 1
            found.append(place)
    return found[::-1]


def _to_bytes(census: Census) -> bytes:
    buffer = io.BytesIO()
    columns = {f"{name}/{column}": values for name, split in census.items() for column, values in vars(split).items()}
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _from_bytes(data: bytes) -> Census:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        columns: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        for key in arrays.files:
            split, _, column = key.rpartition("/")
            columns[split][column] = arrays[key]
    return {split: SplitCensus(**values) for split, values in columns.items()}
