"""Reads a split by position: its shards are mapped into memory, and a batch is one gather over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.open_shards import open_shard
from podline.data.records import size_of, varints
from podline.documents.completion import recorded_artifacts
from podline.documents.manifest import FieldInfo, FileInfo, Manifest
from podline.errors import ArtifactError
from podline.progress import Reporter, silent
from podline.store.contract import Listed, Store
from podline.store.folder import FolderStore
from podline.store.prefetch import in_order

_REMEDY = "put it back, or run `podline convert` again: it writes what is damaged anew, and nothing else"
# Of a folder, files that have to be hashed; a disk's own speed is the limit with more.
_HASHED_AT_ONCE = 4
_CHUNK_BYTES = 16_000_000


class SplitReader:
    """The examples of a split, numbered 0 … len-1 over its shards in the manifest's order.

    Nothing is parsed: every value lies at a known place. Only images that records hold as files are decoded, by as many
    threads as there are cores. Pages come into memory as they are touched and are shared by all readers of the
    same files. Any number of threads may gather at once.
    """

    def __init__(self, local: Callable[[str], Path], manifest: Manifest, split: str, *, watched: bool = False) -> None:
        """Open a split.

        Args:
            local: gives a file of the data set's folder by its name.
            manifest: of the data set.
            split: ``train`` or ``test``.
            watched: whether :meth:`require_unchanged` looks at the files.

        Raises:
            ArtifactError: no such split, or a shard is gone or has another size than the manifest says.
        """
        self.info = manifest.split(split)
        self._fields = {field.name: field for field in manifest.fields}
        self._shards = [open_shard(local, manifest, shard) for shard in self.info.shards]
        paths = [local(file.file) for shard in self.info.shards for file in shard.files] if watched else []
        self._signs = {path: _sign(path) for path in paths}
        self._edges = np.cumsum([0, *(len(shard) for shard in self._shards)])

    def __len__(self) -> int:
        return int(self._edges[-1])

    def gather(
        self,
        indices: npt.NDArray[np.int64],
        fields: Sequence[str] | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the examples at some positions, in the order given.

        Args:
            indices: int64, (n,), each in 0 … len-1.
            fields: the features to read; all by default.
            out: an array for every one of them, C-contiguous, as it would be returned; new ones by default.

        Returns:
            feature → values, (n, …shape): ``image`` uint8 (n, height, width, channels), labels int64 (n,).

        Raises:
            IndexError: a position that is not in the split.
            ArtifactError: a record is damaged.
        """
        chosen = [self._fields[name] for name in (self._fields if fields is None else fields)]
        gathered = {
            field.name: np.empty((len(indices), *field.shape), field.dtype) if out is None else out[field.name]
            for field in chosen
        }
        puts = [_putting(gathered[field.name], field) for field in chosen]
        order = np.argsort(indices)
        for shard, run, places in self._runs(indices[order]):
            for put, found in zip(puts, self._shards[shard].take(places, chosen), strict=True):
                put(order[run], found)
        return gathered

    def chunks(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Read all examples in order, some megabytes at a time: the first one's position, and their values.

        Raises:
            ArtifactError: a record is damaged.
        """
        size = sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in self._fields.values())
        step = max(1, _CHUNK_BYTES // size)
        for first in range(0, len(self), step):
            yield first, self.gather(np.arange(first, min(first + step, len(self))))

    def require_unchanged(self) -> None:
        """Check that the files in a folder have the size and time that they had when they were opened.

        Raises:
            ArtifactError: one was changed.
        """
        for path, sign in self._signs.items():
            if _sign(path) != sign:
                raise ArtifactError(
                    f"{path} was changed while it was read; what was made of it is not kept; give the command again: "
                    "it verifies the file and goes on from what was saved before"
                )

    def locate(self, index: int) -> tuple[str, int, int]:
        """Return where an example lies: its shard's file, its number in it, and the byte where its frame starts."""
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


def open_folder(folder: Path, manifest: Manifest, split: str) -> SplitReader:
    """Open a split whose shards lie in a folder, as they are; see :class:`SplitReader`."""
    return SplitReader(folder.joinpath, manifest, split)


def open_split(
    store: Store, folder: str, manifest: Manifest, split: str, reporter: Reporter | None = None
) -> SplitReader:
    """Open a split of a data set in a store.

    Its shards have the size and time that the conversion's completion record says, or else the manifest's sha256. Those
    in a bucket are downloaded first, several at a time.

    Args:
        store: the store.
        folder: the data set's name in it.
        manifest: of the data set.
        split: ``train`` or ``test``.
        reporter: told of shards as they are ready.

    Raises:
        ArtifactError: no such split, or a shard is gone or not what the manifest says.
        StoreError: a shard cannot be read.
    """
    infos = [file for shard in manifest.split(split).shards for file in shard.files]
    news = reporter or silent()
    there = {found.name: found for found in store.listing(folder)}
    written = recorded_artifacts(store, folder, "convert")
    here = isinstance(store, FolderStore)

    def ready(info: FileInfo) -> Path:
        name = f"{folder}/{info.file}"
        found, artifact = there.get(name), written.get(name)
        if found is None or artifact is None or artifact.sha256 != info.sha256 or not artifact.is_unchanged(found):
            _require_content(store, name, found, info)
        return store.local(name, found)

    paths: dict[str, Path] = {}
    for info, path in zip(infos, in_order(ready, infos, _HASHED_AT_ONCE if here else store.parallel), strict=True):
        paths[info.file] = path
        if not here:
            news.progress(len(paths), len(infos), "files downloaded")
    return SplitReader(paths.__getitem__, manifest, split, watched=here)


def _require_content(store: Store, name: str, found: Listed | None, info: FileInfo) -> None:
    if found is None:
        raise ArtifactError(f"{store.where(name)} is gone; {_REMEDY}")
    if found.bytes != info.bytes:
        raise ArtifactError(f"{store.where(name)} has {found.bytes} bytes vs {info.bytes} in the manifest; {_REMEDY}")
    sha256 = store.sha256(name, found)
    if sha256 != info.sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {sha256[:12]}… vs {info.sha256[:12]}… in the manifest: it was changed "
            f"since it was written; {_REMEDY}"
        )


def _sign(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_size, facts.st_mtime_ns


def _putting(values: np.ndarray, field: FieldInfo) -> Callable[[npt.NDArray[np.int64], np.ndarray], None]:
    """Return what puts elements of a field into places of an array of its values."""
    if field.encoding == "varint":

        def put(places: npt.NDArray[np.int64], found: np.ndarray) -> None:
            values[places] = varints(np.ascontiguousarray(found).view(np.uint8).reshape(-1, field.width))

        return put
    return _elements(values, field).__setitem__


def _elements(values: np.ndarray, field: FieldInfo) -> np.ndarray:
    """View a C-contiguous array of values as one opaque element a record, (n,)."""
    return values.reshape(len(values), math.prod(field.shape), copy=False).view(f"V{size_of(field)}")[:, 0]
