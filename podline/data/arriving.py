"""Shards that are on their way from a bucket to this machine, and can be read from before they are here.

Threads fetch whole shards into the cache, in the order in which they are numbered. Until one is here, the few of its
records that a batch needs are read from the bucket by range: every record's place is known, and its own CRC-32C, which
is part of the TFRecord format, says whether it arrived as it was written. So a shuffled epoch, whose first batch has
records from all over the split, begins at once, with the very batches that it has when all shards are here.

Records that keep JPEG files have no known places: whoever wants one waits until its shard is here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.kept_jpegs import KeptLayout, KeptShard, stored_layout
from podline.data.manifest import FieldInfo, Manifest, ShardInfo
from podline.data.open_shards import MappedShard, open_shard
from podline.data.tfrecord import FRAME_BYTES, HEADER_BYTES, Bytes, header, payload_crcs, stored_crcs
from podline.errors import ArtifactError, StoreUnavailableError
from podline.storage import Listed, Store

# Whoever wants more of a shard than this share waits until it is here: each range is a request of its own.
_LARGEST_SHARE = 1 / 16
_ATTEMPTS = 4


class ArrivingShard:
    """A shard in a bucket; it can be read like one that is here."""

    def __init__(self, store: Store, name: str, found: Listed | None, manifest: Manifest, info: ShardInfo) -> None:
        """A shard; it is not fetched yet.

        Args:
            store: where it is.
            name: its name there.
            found: what a listing told of it.
            manifest: of the data set.
            info: what the manifest says of it.

        Raises:
            ArtifactError: it is gone, or not what the manifest says.
        """
        if found is None:
            raise ArtifactError(f"{store.where(name)} is gone; convert the data again")
        if (found.bytes, store.sha256(name, found)) != (info.bytes, info.sha256):
            raise ArtifactError(f"{store.where(name)} is not what the manifest says; convert the data again")
        self._store, self._name, self._found = store, name, found
        self._manifest, self._info = manifest, info
        self._frame_length = manifest.record_length + FRAME_BYTES
        self._one_length = not isinstance(stored_layout(manifest.fields), KeptLayout)
        self._shard: MappedShard | KeptShard | None = None
        self._failure: Exception | None = None
        self._done = threading.Event()
        # What a thread read last: it asks for one field after the other of the same records.
        self._latest = threading.local()

    def __len__(self) -> int:
        return self._info.records

    def start(self, place: int) -> int:
        """The byte at which a record's frame starts."""
        return place * self._frame_length if self._one_length else self._whole().start(place)

    def column(self, field: FieldInfo) -> ArrivingColumn:
        """A field's values, by the records' places."""
        return ArrivingColumn(self, field)

    def fetch(self) -> None:
        """Fetches the shard; what goes wrong is raised by those who want its records."""
        try:
            path = self._store.local(self._name, self._found)
            self._shard = open_shard(path, self._manifest, self._info)
        except Exception as error:
            self._failure = error
        self._done.set()

    def values(self, field: FieldInfo, places: npt.NDArray[np.int64]) -> Any:
        """A field's values of some records, before the shard is here or when it is.

        Raises:
            ArtifactError: the shard is another one by now.
            StoreUnavailableError: a record arrives damaged again and again.
        """
        few = len(places) <= _LARGEST_SHARE * self._info.records
        if self._done.is_set() or not few or not self._one_length:
            return self._whole().column(field)[places]
        return MappedShard(self._read(places)).column(field)

    def _whole(self) -> MappedShard | KeptShard:
        self._done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._shard is not None  # noqa: S101 (it is here, or has failed)
        return self._shard

    def _read(self, places: npt.NDArray[np.int64]) -> Bytes:
        """The frames of some records, by range; uint8, (n, 16 + record length)."""
        key = places.tobytes()
        if getattr(self._latest, "key", None) != key:
            with ThreadPoolExecutor(self._store.parallel) as threads:
                self._latest.frames = np.stack(list(threads.map(self._read_record, places.tolist())))
            self._latest.key = key
        return self._latest.frames

    def _read_record(self, place: int) -> npt.NDArray[np.uint8]:
        length = self._frame_length
        for _ in range(_ATTEMPTS):
            data = self._store.read_range(self._name, place * length, length, self._found.version)
            frame = np.frombuffer(data, np.uint8)
            if len(frame) == length and data[:HEADER_BYTES] == header(self._manifest.record_length):
                row = frame[None]
                if payload_crcs(row)[0] == stored_crcs(row)[0]:
                    return frame
        raise StoreUnavailableError(
            f"{self._store.where(self._name)}: record {place} arrives damaged, {_ATTEMPTS} times in a row"
        )


@dataclass(frozen=True)
class ArrivingColumn:
    """A field's values in a shard, by the records' places."""

    shard: ArrivingShard
    field: FieldInfo

    def __getitem__(self, places: npt.NDArray[np.int64]) -> Any:
        """The values of some records, (n,)."""
        return self.shard.values(self.field, places)


def fetch_all(shards: Iterable[ArrivingShard], parallel: int) -> None:
    """Begins to fetch shards, several at a time, in order; returns at once."""
    waiting, lock = iter(shards), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                shard = next(waiting, None)
            if shard is None:
                return
            shard.fetch()

    for number in range(parallel):
        # A process that ends does not wait for what it no longer needs.
        threading.Thread(target=work, name=f"fetching shards {number}", daemon=True).start()
