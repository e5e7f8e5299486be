"""Reading a split by position: its shards are mapped into memory, and a batch is one gather over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.arriving import Arrivals, ArrivingShard
from podline.data.open_shards import open_shard
from podline.data.records import size_of, varints
from podline.data.verified_files import VerifiedFiles, verify
from podline.documents.manifest import FieldInfo, Manifest, ShardInfo
from podline.progress import Reporter
from podline.store.contract import Store
from podline.store.folder import FolderStore


class SplitReader:
    """The examples of a split, numbered 0 … len-1 over its shards in the manifest's order.

    Nothing is parsed: every value lies at a known place. Only images that are kept as JPEG files are decoded, by as
    many threads as there are cores. Pages come into memory as they are touched and are shared by all readers of the
    same files. Any number of threads may gather at once.
    """

    def __init__(
        self, place: Path | Arrivals, manifest: Manifest, split: str, verified: VerifiedFiles | None = None
    ) -> None:
        """Opens a split.

        Args:
            place: the folder where its shards lie, or those that are on their way.
            manifest: what they are.
            split: ``train`` or ``test``.
            verified: its shards in a folder, if they were verified.

        Raises:
            ArtifactError: no such split, or a shard is gone or has another size than the manifest says.
        """
        self.info = manifest.split(split)
        self._verified = verified
        self._fields = {field.name: field for field in manifest.fields}
        if isinstance(place, Path):
            self._shards = [open_shard(place / shard.file, manifest, shard) for shard in self.info.shards]
        else:
            self._shards = place.shards
        self._arrivals = place if isinstance(place, Arrivals) else None
        self._columns = {field.name: [shard.column(field) for shard in self._shards] for field in manifest.fields}
        self._edges = np.cumsum([0, *(len(shard) for shard in self._shards)])

    def __len__(self) -> int:
        return int(self._edges[-1])

    def gather(
        self,
        indices: npt.NDArray[np.int64],
        fields: Sequence[str] | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """The examples at some positions, in the order given.

        Args:
            indices: int64, (n,), each in 0 … len-1.
            fields: the features to read; all by default.
            out: an array for every one of them, C-contiguous, as it would be returned; new ones by default.

        Returns:
            feature → values, (n, …shape): ``image`` uint8 (n, height, width, channels), labels int64 (n,).

        Raises:
            IndexError: a position that is not in the split.
        """
        order = np.argsort(indices)
        runs = self._runs(indices[order])
        if self._arrivals is not None:
            self._arrivals.read((shard, places) for shard, _, places in runs)
        gathered = {}
        for name in self._fields if fields is None else fields:
            field = self._fields[name]
            values = np.empty((len(indices), *field.shape), field.dtype) if out is None else out[name]
            put = _putting(values, field)
            for shard, run, places in runs:
                put(order[run], self._columns[name][shard][places])
            gathered[name] = values
        return gathered

    def require_unchanged(self) -> None:
        """Makes sure that what was read is what was verified; records in a bucket are verified as they arrive.

        Raises:
            ArtifactError: a shard was changed since the split was opened.
        """
        if self._verified is not None:
            self._verified.require_unchanged()

    def locate(self, index: int) -> tuple[str, int, int]:
        """Where an example lies: its shard's file, its number in it, and the byte where its frame starts."""
        [(shard, _, places)] = self._runs(np.array([index]))
        place = int(places[0])
        return self.info.shards[shard].file, place, self._shards[shard].start(place)

    def _runs(self, ordered: npt.NDArray[np.int64]) -> list[tuple[int, slice, npt.NDArray[np.int64]]]:
        """Sorted positions cut at the shards' edges: the shard, which of the positions, their places in it."""
        if len(ordered) and not 0 <= int(ordered[0]) <= int(ordered[-1]) < len(self):
            raise IndexError(f"positions {ordered[0]} to {ordered[-1]} vs {len(self)} examples in the split")
        cuts = np.searchsorted(ordered, self._edges).tolist()
        return [
            (shard, slice(start, stop), ordered[start:stop] - self._edges[shard])
            for shard, (start, stop) in enumerate(itertools.pairwise(cuts))
            if start < stop
        ]


def open_split(
    store: Store, folder: str, manifest: Manifest, split: str, reporter: Reporter | None = None
) -> SplitReader:
    """A split of a data set in a store: its shards are what the manifest says, by their sha256.

    In a folder they are verified now, if they may have been changed since that was last done (see
    :mod:`podline.data.verified_files`). Those in a bucket begin to arrive now, and can be read at once.

    Args:
        store: the store.
        folder: the data set's name in it.
        manifest: of the data set.
        split: ``train`` or ``test``.
        reporter: told of shards that are verified, if that takes long.

    Raises:
        ArtifactError: no such split, or a shard is gone or not what the manifest says.
        StoreError: a shard cannot be looked at.
    """
    infos = manifest.split(split).shards
    if isinstance(store, FolderStore):
        verified = verify(store, folder, manifest, infos, reporter)
        return SplitReader(store.local(folder), manifest, split, verified)

    found = {there.name: there for there in store.listing(folder)}

    def look(info: ShardInfo) -> ArrivingShard:
        name = f"{folder}/{info.file}"
        return ArrivingShard(store, name, found.get(name), manifest, info)

    with ThreadPoolExecutor(store.parallel) as threads:
        arrivals = Arrivals(list(threads.map(look, infos)), store.parallel)
    arrivals.fetch()
    return SplitReader(arrivals, manifest, split)


def _putting(values: np.ndarray, field: FieldInfo) -> Callable[[npt.NDArray[np.int64], np.ndarray], None]:
    """What puts elements of a field's columns into places of an array of its values."""
    if field.encoding == "varint":

        def put(places: npt.NDArray[np.int64], found: np.ndarray) -> None:
            values[places] = varints(np.ascontiguousarray(found).view(np.uint8).reshape(-1, field.width))

        return put
    return _elements(values, field).__setitem__


def _elements(values: np.ndarray, field: FieldInfo) -> np.ndarray:
    """A C-contiguous array of values as one opaque element a record, (n,); no copy."""
    return values.reshape(len(values), math.prod(field.shape), copy=False).view(f"V{size_of(field)}")[:, 0]
