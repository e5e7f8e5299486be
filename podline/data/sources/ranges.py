"""A file of a source in a bucket, read by range and never copied.

A range comes without a checksum. So a file is read through once, in pieces, against the CRC-32C that the service has of
the whole; the CRC-32C of each block is noted meanwhile, and from then on a block that arrives otherwise is asked for
again. What was noted is kept for the next time: it is that of one generation of the object, which never changes.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.errors import DamagedTransferError, PodlineError
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.store.prefetch import in_order
from podline.store.transfer_retries import with_transfer_retries

BLOCK_BYTES = 1 << 18
_PIECE_BLOCKS = 16  # of one request
_BUFFER_BYTES = 1 << 22


class Generation(NamedTuple):
    """One generation of an object.

    Attributes:
        store: the object's bucket.
        name: in it.
        version: the generation.
    """

    store: Store
    name: str
    version: str


def generation(uri: str) -> Generation:
    """What ``gs://bucket/name#generation`` names."""
    place, _, version = uri.rpartition("#")
    bucket, _, name = place.removeprefix(BUCKET_SCHEME).partition("/")
    return Generation(open_store(f"{BUCKET_SCHEME}{bucket}"), name, version)


def read_confirmed(read: Callable[[], bytes], right: Callable[[bytes], bool], where: str) -> bytes:
    """Bytes that arrived as they are there: those that look right, or else those that came twice.

    Raises:
        DamagedTransferError: they come differently again and again.
    """
    before: list[bytes] = []

    def attempt() -> bytes:
        data = read()
        if data in before or right(data):
            return data
        before.append(data)
        raise _damaged(where)

    return with_transfer_retries(attempt)


@dataclass(frozen=True)
class RangedFile:
    """A file in a bucket of which every block's checksum is known; small enough to travel to workers.

    Attributes:
        uri: ``gs://bucket/name#generation``.
        bytes: its size.
        crcs: of its blocks of :data:`BLOCK_BYTES`, little-endian uint32.
    """

    uri: str
    bytes: int
    crcs: bytes

    def __str__(self) -> str:
        """What errors call this."""
        return self.uri.rpartition("#")[0]

    @property
    def parallel(self) -> int:
        """How many ranges may be read at once."""
        return generation(self.uri).store.parallel

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the file; fewer than ``length`` at its end.

        Raises:
            ArtifactError: it has another generation by now.
            StoreError: it cannot be read.
        """
        stop = min(start + length, self.bytes)
        if stop <= start:
            return b""
        first = start // BLOCK_BYTES
        data = self._blocks(first, -(-stop // BLOCK_BYTES))
        return data[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def read_bytes(self) -> bytes:
        """All of it; see :meth:`read`."""
        return b"".join(piece for _start, piece in self._pieces(range(-(-self.bytes // BLOCK_BYTES))))

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        """The file as a binary stream that reads by range."""
        del mode  # pathlib's, whose place this takes
        return buffered(self.read, self.bytes)

    def rows_into(self, out: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> None:
        """Reads what is as long as a row of ``out`` from ``starts[i]`` on into ``out[rows[i]]``; see :meth:`read`.

        Blocks that hold any of it are fetched once each, several at a time.

        Args:
            out: uint8, (n, size), C-contiguous.
            rows: which rows of it to fill.
            starts: bytes of the file.
        """
        size = out.shape[1]
        order = np.argsort(starts, kind="stable")
        starts, rows = starts[order], rows[order]
        spread = np.arange(-(-size // BLOCK_BYTES) + 1) * BLOCK_BYTES
        touched = np.minimum(starts[:, None] + spread, starts[:, None] + size - 1) // BLOCK_BYTES
        for at, piece in self._pieces(np.unique(touched).tolist()):
            found = np.frombuffer(piece, np.uint8)
            first, last = np.searchsorted(starts, (at - size + 1, at + len(piece)))
            for start, row in zip(starts[first:last].tolist(), rows[first:last].tolist(), strict=True):
                low, high = max(start, at), min(start + size, at + len(piece))
                out[row, low - start : high - start] = found[low - at : high - at]

    def _pieces(self, blocks: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The bytes of ascending blocks, neighbours together, each piece with where it starts."""
        runs: list[tuple[int, int]] = []
        for block in blocks:
            first, last = runs[-1] if runs else (-1, -1)
            if block == last and last - first < _PIECE_BLOCKS:
                runs[-1] = first, block + 1
            else:
                runs.append((block, block + 1))
        yield from in_order(lambda run: (run[0] * BLOCK_BYTES, self._blocks(*run)), runs, self.parallel)

    def _blocks(self, first: int, last: int) -> bytes:
        store, name, version = generation(self.uri)
        start, stop = first * BLOCK_BYTES, min(last * BLOCK_BYTES, self.bytes)

        def attempt() -> bytes:
            data = store.read_range(name, start, stop - start, version)
            if len(data) == stop - start and block_crcs(data) == self.crcs[4 * first : 4 * last]:
                return data
            raise _damaged(str(self))

        return with_transfer_retries(attempt)


def looked_through(uri: str, size: int, work: Path) -> tuple[RangedFile, str]:
    """A file with its blocks' checksums, and its sha256; read through if that was not done before.

    Args:
        uri: ``gs://bucket/name#generation``.
        size: of it, in bytes.
        work: the folder where checksums are kept.

    Raises:
        ArtifactError: it has another generation by now.
        StoreError: it cannot be read.
    """
    kept, name = FolderStore(work / "checksums"), f"{digests.of_bytes(uri.encode())[:32]}.json"
    known = _known(kept, name, uri)
    if known is None:
        known = _read_through(uri)
        kept.publish_json(name, {"uri": uri, "sha256": known[0], "crcs": base64.b64encode(known[1]).decode()})
    sha256, crcs = known
    return RangedFile(uri, size, crcs), sha256


def _known(kept: FolderStore, name: str, uri: str) -> tuple[str, bytes] | None:
    try:
        noted = kept.read_json(name)
        return (noted["sha256"], base64.b64decode(noted["crcs"])) if noted["uri"] == uri else None
    except (PodlineError, KeyError, TypeError, ValueError):
        return None


def _read_through(uri: str) -> tuple[str, bytes]:
    store, name, version = generation(uri)

    def attempt() -> tuple[str, bytes]:
        digest, crcs = hashlib.sha256(), []
        for piece in store.read_pieces(name, _PIECE_BLOCKS * BLOCK_BYTES, version):
            digest.update(piece)
            crcs.append(block_crcs(piece))
        return digest.hexdigest(), b"".join(crcs)

    return with_transfer_retries(attempt)


def block_crcs(data: bytes) -> bytes:
    """The CRC-32C of each block of some bytes, little-endian uint32."""
    starts = range(0, len(data), BLOCK_BYTES)
    return b"".join(google_crc32c.value(data[start : start + BLOCK_BYTES]).to_bytes(4, "little") for start in starts)


def buffered(read: Callable[[int, int], bytes], size: int) -> BinaryIO:
    """A file to read, made of a function that reads ``length`` bytes from ``start`` on."""
    return cast("BinaryIO", io.BufferedReader(_Stream(read, size), _BUFFER_BYTES))


class _Stream(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._bytes, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = io.SEEK_SET, /) -> int:
        place += {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._bytes}[whence]
        if place < 0:
            raise ValueError(f"byte {place} of a file")
        self._at = place
        return place

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._read(self._at, min(len(buffer), max(0, self._bytes - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _damaged(where: str) -> DamagedTransferError:
    return DamagedTransferError(f"{where}: it arrives damaged")
