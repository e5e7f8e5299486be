"""Reads a split's examples by position: shards are mapped into memory, and one NumPy gather reads a batch."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import math
import mmap
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Ids, Pixels
from podline.base.cores import usable_cores
from podline.base.errors import ArtifactError
from podline.base.progress import Reporter, silent
from podline.data import jpeg_files
from podline.data.pictures import PictureError
from podline.data.records import IMAGE, size_of, values_of
from podline.data.tfrecord import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    damaged_record,
    header,
    masked_crcs,
    require_sound,
)
from podline.documents.completion import completion_name, read_completion
from podline.documents.manifest import MANIFEST, FieldInfo, FileInfo, Manifest, listed_files, stored_name
from podline.documents.shard_table import ShardInfo
from podline.store.contract import Listed, Store, explained
from podline.store.folder import FolderStore
from podline.store.prefetch import in_order

REMEDY = "restore the file, or run `podline convert` again, which replaces only missing and damaged files"
HASHED_AT_ONCE = 4
"""Number of files that are hashed at the same time; more would not be faster, since a disk's speed is the limit."""
_CHUNK_BYTES = 16_000_000
_MAP_FIXED = 0x10
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class MappedFiles:
    """The content of files in one range of addresses; each file starts at a page boundary.

    The operating system loads pages on access and shares them among all processes that map the same files.

    Attributes:
        data: uint8, (bytes of all pages,), read-only.
        starts: position of each file's first byte in ``data``, int64 (files,).
    """

    def __init__(self, files: Mapping[Path, int]) -> None:
        """Map files, given as path → size in bytes.

        Raises:
            ArtifactError: a file does not exist, or its size differs from the given size.
            StoreError: a file cannot be read.
        """
        pages = [-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in files.values()]
        edges = [0, *itertools.accumulate(pages)]
        # One call reserves the address range; each file is then mapped over its part.
        reserved = mmap.mmap(-1, max(edges[-1], 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        self.data = np.frombuffer(reserved, np.uint8)
        self.starts = np.array(edges[:-1], np.int64)
        for (path, size), start in zip(files.items(), edges, strict=False):
            _map(path, size, self.data.ctypes.data + start)

    def take(self, places: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
        """Return ``size`` bytes from each position in :attr:`data`: int64 (n,) to uint8 (n, size)."""
        # A strided view has one overlapping row per byte; NumPy copies each requested row in one piece.
        every = np.ndarray((max(0, len(self.data) - size + 1),), f"V{size}", self.data, 0, (1,))
        return every[places].view(np.uint8).reshape(-1, size)


def _map(path: Path, size: int, address: int) -> None:
    if not path.exists():
        raise ArtifactError(f"{path} is gone; convert the data again")
    with explained("read", path), path.open("rb") as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != size:
            raise ArtifactError(f"{path} has {found} bytes vs {size} in the manifest; convert the data again")
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if size and _LIBC.mmap(address, size, mmap.PROT_READ, flags, stream.fileno(), 0) != address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class SplitReader:
    """The examples of a split, numbered 0 … len-1 over its shards in the manifest's order.

    If the split uses shards of older versions, the table of records selects and orders their records.

    Nothing is parsed, since every value is at a fixed byte offset in its record. Only images that records store as
    files are decoded, by one thread per core. The checksums of a record, which are part of the TFRecord format, are
    verified when the record is first read. Threads may call :meth:`gather` at the same time.
    """

    def __init__(self, local: Callable[[str], Path], manifest: Manifest, split: str, *, watched: bool = False) -> None:
        """Open a split of a data set; ``local`` returns the path on this machine of a file in the data set's folder.

        With ``watched``, :meth:`require_unchanged` compares the files' sizes and times.

        Raises:
            ArtifactError: the split, a shard or its index does not exist; or a shard's size, an index or the table of
                records differs from the manifest.
            StoreError: a file cannot be read.
        """
        self.info, self._local = manifest.split(split), local
        shards = self.info.every_shard
        self._fields = {field.name: field for field in manifest.fields}
        self._files = MappedFiles({local(shard.file): shard.bytes for shard in shards})
        self._edges = np.cumsum([0, *shards.lengths])
        self._frame_length = manifest.record_length + FRAME_BYTES
        indexes = [_index(local(shard.index.file), shard) for shard in shards if shard.index]
        self._index = np.concatenate(indexes) if indexes else None
        table = local(manifest.records.file) if manifest.records and self.info.older else None
        self._places = None
        if table:
            from podline.data.record_table import places  # noqa: PLC0415 (data sets without versions need no PyArrow)

            self._places = places(table, self.info)
        self._checked = np.zeros(len(self), np.bool_)
        paths = [local(file.file) for shard in shards for file in shard.files] if watched else []
        self._file_states = {path: _file_state(path) for path in paths}

    def __len__(self) -> int:
        return self.info.records

    def gather(self, indices: Ids, fields: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return the examples at some positions, (n,), in the given order: all features, or only ``fields``.

        Returns:
            feature → values, (n, …shape): ``image`` uint8 (n, height, width, channels), labels int64 (n,).

        Raises:
            IndexError: a position is outside the split.
            ArtifactError: a record is damaged.
        """
        starts, ends = self._frames(indices)
        fresh = ~self._checked[indices]
        if fresh.any():
            self._require_sound(indices[fresh], starts[fresh], ends[fresh])
        gathered = {}
        for field in self._fields.values() if fields is None else map(self._fields.__getitem__, fields):
            begins = starts + (HEADER_BYTES + field.offset)
            if field.fit:
                gathered[field.name] = self._images(indices, begins, ends - FOOTER_BYTES, field)
            else:
                values = values_of(field, self._files.take(begins, size_of(field)))
                gathered[field.name] = values.astype(field.dtype, copy=False)
        return gathered

    def files(self, indices: Ids) -> list[bytes]:
        """Return the image files in the records at some positions; :meth:`gather` must have verified these records.

        Raises:
            IndexError: a position is outside the split.
        """
        starts, ends = self._frames(indices)
        begins = starts + (HEADER_BYTES + self._fields[IMAGE].offset)
        places = zip(begins.tolist(), (ends - FOOTER_BYTES).tolist(), strict=True)
        return [self._files.data[begin:end].tobytes() for begin, end in places]

    def _frames(self, indices: Ids) -> tuple[Ids, Ids]:
        """Return the starts and ends of some records' frames in the mapped files."""
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(self):
            raise IndexError(f"got positions {indices.min()} to {indices.max()}, expected 0 to {len(self) - 1}")
        indices = self._physical(indices)
        shards = np.searchsorted(self._edges, indices, side="right") - 1
        first = self._files.starts[shards]
        if self._index is None:
            starts = first + (indices - self._edges[shards]) * self._frame_length
            return starts, starts + self._frame_length
        places = indices + shards  # each shard's index has one entry more than records
        return first + self._index[places], first + self._index[places + 1]

    def _physical(self, indices: Ids) -> Ids:
        """Map positions in the split to positions in its shards, which may have records of other versions too."""
        return indices if self._places is None else self._places[indices].astype(np.int64)

    def _require_sound(self, indices: Ids, starts: Ids, ends: Ids) -> None:
        data, frames = self._files.data, [*zip(starts.tolist(), ends.tolist(), strict=True)]
        heads = b"".join([header(end - start - FRAME_BYTES) for start, end in frames])
        crcs = masked_crcs(data[start + HEADER_BYTES : end - FOOTER_BYTES] for start, end in frames)
        stored = self._files.take(ends - FOOTER_BYTES, FOOTER_BYTES).view("<u4")[:, 0]
        if heads != self._files.take(starts, HEADER_BYTES).tobytes() or not np.array_equal(crcs, stored):
            for index, (start, end) in zip(indices.tolist(), frames, strict=True):
                require_sound(*self._path_location(index), data[start:end])
        self._checked[indices] = True

    def _images(self, indices: Ids, begins: Ids, ends: Ids, field: FieldInfo) -> Pixels:
        """Decode the images of records that store files."""
        data, images = self._files.data, np.empty((len(indices), *field.shape), np.uint8)

        def decoded(index: int, begin: int, end: int, image: Pixels) -> None:
            try:
                image[...] = jpeg_files.decoded(data[begin:end].tobytes(), field.shape, field.fit)
            except PictureError as error:
                raise damaged_record(*self._path_location(index), f"has an image that {error}") from error

        columns = (column.tolist() for column in (indices, begins, ends))
        for _ in in_order(lambda one: decoded(*one), zip(*columns, images, strict=True), usable_cores()):
            pass
        return images

    def _path_location(self, index: int) -> tuple[str, int, int]:
        """Return the location of an example as :meth:`locate` does, but with the shard's path instead of its name."""
        file, place, byte = self.locate(index)
        return str(self._local(file)), place, byte

    def locate(self, index: int) -> tuple[str, int, int]:
        """Return an example's location: file name of the shard, record number in the shard, first byte of the frame."""
        (start,), _ = self._frames(np.array([index]))
        [place] = self._physical(np.array([index]))
        shard = int(np.searchsorted(self._edges, place, side="right")) - 1
        file = self.info.every_shard[shard].file
        return file, int(place - self._edges[shard]), int(start - self._files.starts[shard])

    def chunks(self) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
        """Read all examples in order, some megabytes at a time.

        Yields:
            The index of the shard (always 0 if the split uses shards of older versions), the position of the first
            example in the split, and the values, as :meth:`gather` returns them.

        Raises:
            ArtifactError: a record is damaged.
        """
        size = sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in self._fields.values())
        step = max(1, _CHUNK_BYTES // size)
        edges = self._edges.tolist() if self._places is None else [0, len(self)]
        for shard, (begin, end) in enumerate(itertools.pairwise(edges)):
            for first in range(begin, end, step):
                yield shard, first, self.gather(np.arange(first, min(first + step, end)))

    def require_unchanged(self) -> None:
        """Check that the files still have the size and time that they had when they were opened.

        Raises:
            ArtifactError: a file was changed.
        """
        for path, state in self._file_states.items():
            if _file_state(path) != state:
                raise ArtifactError(
                    f"{path} was changed while it was read, so the results are discarded; run the command again: it "
                    "verifies the file, and a training resumes from the last checkpoint"
                )


def _index(path: Path, shard: ShardInfo) -> Ids:
    """Read a shard's index: the first byte of each record, then the end of the last record, int64 (records + 1,)."""
    if not path.exists():
        raise ArtifactError(f"{path} is gone; convert the data again")
    with explained("read", path):
        data = path.read_bytes()
    found, expected = hashlib.sha256(data).hexdigest(), shard.index.sha256 if shard.index else ""
    if found != expected:
        raise ArtifactError(f"{path} has sha256 {found} vs {expected} in the manifest; convert the data again")
    return np.frombuffer(data[-8 * (shard.records + 1) :], "<i8")


def open_split(
    store: Store, folder: str, manifest: Manifest, split: str, reporter: Reporter | None = None
) -> SplitReader:
    """Open a split of a data set in a store.

    Each shard must have the size and time in the conversion's completion record, or else the manifest's sha256. Shards
    in a bucket are downloaded first, several at a time, with reported progress.

    Raises:
        ArtifactError: the split or a shard does not exist, or a shard differs from the manifest.
        StoreError: a shard cannot be read.
    """
    info = manifest.split(split)
    wanted = {file.file for shard in info.every_shard for file in shard.files}
    if info.older and manifest.records:
        wanted.add(manifest.records.file)
    news = reporter or silent()
    here = isinstance(store, FolderStore)

    def ready(listed: tuple[FileInfo, Listed | None], written: float | None) -> tuple[str, Path]:
        info, found = listed
        name = stored_name(folder, info.file)
        if found is None or (found.bytes, found.published) != (info.bytes, written):
            require_content(store, name, found, info)
        return info.file, store.local(name, found)

    files = zip(listed_files(store, manifest), _published(store, folder), strict=False)
    asked = (file for file in files if file[0][0].file in wanted)
    paths: dict[str, Path] = {}
    for file, path in in_order(lambda one: ready(*one), asked, HASHED_AT_ONCE if here else store.parallel):
        paths[file] = path
        if not here:
            news.progress(len(paths), len(wanted), "files downloaded")
    return SplitReader(paths.__getitem__, manifest, split, watched=here)


def _published(store: Store, folder: str) -> Iterator[float | None]:
    """Yield the publication time of each listed file from the conversion's completion record; None if unknown."""
    name, written = f"{folder}/{MANIFEST}", array("d")
    if store.exists(completion_name(folder, "convert")):
        with contextlib.suppress(ArtifactError):
            record = read_completion(store, folder, "convert")
            sums = {artifact.name: artifact.sha256 for artifact in record.artifacts}
            written = record.times if sums.get(name) == store.sha256(name) else written
    return itertools.chain(written, itertools.repeat(None))


def require_content(store: Store, name: str, found: Listed | None, info: FileInfo) -> Listed:
    """Check the size and sha256 of a data set's file, and return its listing.

    Raises:
        ArtifactError: the file does not exist or differs.
        StoreError: the file cannot be read.
    """
    if found is None:
        raise ArtifactError(f"{store.where(name)} is gone; {REMEDY}")
    if found.bytes != info.bytes:
        raise ArtifactError(f"{store.where(name)} has {found.bytes} bytes vs {info.bytes} in the manifest; {REMEDY}")
    sha256 = store.sha256(name, found)
    if sha256 != info.sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {sha256[:12]}… vs {info.sha256[:12]}… in the manifest: it was changed "
            f"since it was written; {REMEDY}"
        )
    return found


def _file_state(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_size, facts.st_mtime_ns
