"""Reads records of shards that are still being downloaded from a bucket.

Threads fetch whole shards into the cache, in the order in which they are numbered. Until one is here, the few of its
records that a batch needs are read from the bucket by range: every record's place is known, and its own CRC-32C, which
is part of the TFRecord format, says whether it arrived as it was written. Records that lie near each other come in one
range, with what lies between them: a request costs as much as some hundreds of kilobytes. So a shuffled epoch, whose
first batch has records from all over the split, begins at once, with the very batches that it has when all shards are
here. That first batch has the network to itself: the shards come after it, or after a second if nobody asks for one.

Records that keep JPEG files have no known places: whoever wants one waits until its shard is here.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.kept_jpegs import KeptLayout, KeptShard, stored_layout
from podline.data.open_shards import MappedShard, open_shard
from podline.data.tfrecord import FRAME_BYTES, HEADER_BYTES, Bytes, header, payload_crcs, stored_crcs
from podline.documents.manifest import FieldInfo, Manifest, ShardInfo
from podline.errors import ArtifactError, DamagedTransferError
from podline.store.contract import Listed, Store
from podline.store.transfer_retries import with_transfer_retries

# Whoever wants more of a shard than this share waits until it is here: each range is a request of its own.
_LARGEST_SHARE = 1 / 16
# Between two records of a range lies less than this; a range is no longer than four times as much, or is one record.
_LARGEST_GAP_BYTES = 1 << 19
_LARGEST_RANGE_BYTES = 4 * _LARGEST_GAP_BYTES
# Ranges are short, and mostly waiting: so many are read at once for each object that is fetched at once.
_RANGES_AT_ONCE = 4
_FIRST_SECONDS = 1.0


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
        self._header = np.frombuffer(header(manifest.record_length), np.uint8)
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
        """A field's values of some records: of those that this thread took before, or else of the whole shard."""
        key, frames = getattr(self._latest, "records", (b"", None))
        if frames is not None and key == places.tobytes():
            return MappedShard(frames).column(field)
        return self._whole().column(field)[places]

    def comes_by_range(self, places: npt.NDArray[np.int64]) -> bool:
        """Whether these records are to be read by range: they are few, and the shard is not here."""
        return not self._done.is_set() and self._one_length and len(places) <= _LARGEST_SHARE * self._info.records

    def take(self, places: npt.NDArray[np.int64], frames: Bytes) -> None:
        """Records that were read by range, by the thread that is going to want their values."""
        self._latest.records = places.tobytes(), frames

    def ranges(self, places: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        """Ascending places cut into those of one range each."""
        starts = (places * self._frame_length).tolist()
        first = 0
        for last, (start, following) in enumerate(itertools.pairwise([*starts, math.inf])):
            gap, length = following - start - self._frame_length, following + self._frame_length - starts[first]
            if gap > _LARGEST_GAP_BYTES or length > _LARGEST_RANGE_BYTES:
                yield places[first : last + 1]
                first = last + 1

    def _whole(self) -> MappedShard | KeptShard:
        self._done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._shard is not None  # noqa: S101 (it is here, or has failed)
        return self._shard

    def read_range(self, places: npt.NDArray[np.int64]) -> Bytes:
        """Records' frames, by one range.

        Args:
            places: int64, (n,), ascending, n > 0.

        Returns:
            uint8, (n, 16 + record length).

        Raises:
            ArtifactError: the shard is another one by now.
            DamagedTransferError: one of them arrives damaged again and again.
        """
        return with_transfer_retries(lambda: self._attempted(places))

    def _attempted(self, places: npt.NDArray[np.int64]) -> Bytes:
        first, size = int(places[0]), self._frame_length
        count = int(places[-1]) + 1 - first
        data = self._store.read_range(self._name, first * size, count * size, self._found.version)
        if len(data) != count * size:
            raise self._damaged(first)
        frames = np.frombuffer(data, np.uint8).reshape(count, size)[places - first]
        headers_differ = (frames[:, :HEADER_BYTES] != self._header).any(axis=1)
        wrong = np.flatnonzero(headers_differ | (payload_crcs(frames) != stored_crcs(frames)))
        if len(wrong):
            raise self._damaged(int(places[wrong[0]]))
        return frames

    def _damaged(self, place: int) -> DamagedTransferError:
        return DamagedTransferError(f"{self._store.where(self._name)}: record {place} arrives damaged")


@dataclass(frozen=True)
class ArrivingColumn:
    """A field's values in a shard, by the records' places."""

    shard: ArrivingShard
    field: FieldInfo

    def __getitem__(self, places: npt.NDArray[np.int64]) -> Any:
        """The values of some records, (n,)."""
        return self.shard.values(self.field, places)


class Arrivals:
    """The shards of a split, on their way.

    Attributes:
        shards: in the manifest's order.
    """

    def __init__(self, shards: Sequence[ArrivingShard], parallel: int) -> None:
        """Shards; nothing is fetched yet.

        Args:
            shards: in the manifest's order.
            parallel: how many are fetched at once; of ranges, four times as many are read.
        """
        self.shards = shards
        self._parallel = parallel
        self._begin = threading.Event()

    def fetch(self) -> None:
        """Begins to fetch the shards, in order, after the first batch; returns at once."""
        waiting, lock = iter(self.shards), threading.Lock()

        def work() -> None:
            self._begin.wait(_FIRST_SECONDS)
            while True:
                with lock:
                    shard = next(waiting, None)
                if shard is None:
                    return
                shard.fetch()

        for number in range(self._parallel):
            # A process that ends does not wait for what it no longer needs.
            threading.Thread(target=work, name=f"fetching shards {number}", daemon=True).start()

    def read(self, wanted: Iterable[tuple[int, npt.NDArray[np.int64]]]) -> None:
        """Reads what this thread is going to want of some shards and can be read by range, all of it at once.

        Args:
            wanted: which shards, and the places of records in each.

        Raises:
            ArtifactError: a shard is another one by now.
            DamagedTransferError: a record arrives damaged again and again.
        """
        asked = [(self.shards[shard], places) for shard, places in wanted]
        by_range = [(shard, places) for shard, places in asked if shard.comes_by_range(places)]
        if len(by_range) < len(asked):
            self._begin.set()  # the others are waited for
        if by_range:
            self._read_ranges(by_range)
        self._begin.set()

    def _read_ranges(self, wanted: Sequence[tuple[ArrivingShard, npt.NDArray[np.int64]]]) -> None:
        ranges = [(shard, places) for shard, all_places in wanted for places in shard.ranges(all_places)]
        with ThreadPoolExecutor(_RANGES_AT_ONCE * self._parallel) as threads:
            frames = np.concatenate(list(threads.map(lambda one: one[0].read_range(one[1]), ranges)))
        edges = np.cumsum([len(places) for _, places in wanted])[:-1]
        for (shard, places), its_frames in zip(wanted, np.split(frames, edges), strict=True):
            shard.take(places, its_frames)
