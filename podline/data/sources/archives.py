"""Unpacks untrusted .tar.gz and .gz files in a child process with limits, and only into a given folder."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.rawfiles import RawFile, raw_file, reading
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import confined
from podline.recipes.official import official_name
from podline.store.contract import explained

GZIP_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 20
_REMEDY = "fetch the official file again with `podline data download`"
_MEMORY = 64_000_000
_RATE = 100e6  # least number of bytes that are unpacked per second of CPU time


def in_child(function: Callable[..., list[str]], packed: Path, argument: Any, folder: Path) -> list[RawFile]:
    """Call :func:`unpack` or :func:`decompress` in a child process with limits; return the files written.

    Args:
        function: :func:`unpack` or :func:`decompress`.
        packed: the archive or the .gz file.
        argument: the second argument of ``function``.
        folder: the folder for the files.

    Raises:
        SourceError: the archive cannot be read, ``function`` raised one, or the child exceeded a limit.
        StoreError: the folder cannot be written.
    """
    with reading(packed):
        limits = ParseLimits(_MEMORY, 0.4 + bounds.unpacked(packed.stat().st_size) / _RATE)
        names = confined(function, packed, argument, folder, what=str(packed), limits=limits)
    return [raw_file(name, folder / name) for name in names]


def decompress(path: Path, name: str, folder: Path) -> list[str]:
    """Unpack a gzip file into the file ``folder / name``; return the name.

    Raises:
        SourceError: the file is truncated or damaged (its checksum is verified), or unpacks to too many bytes.
        StoreError: the folder cannot be written.
    """
    with reading(path, "gzip", _REMEDY), gzip.open(path) as stream:
        _write(folder / name, _blocks(stream, path))
    return [name]


def unpack(archive: Path, wanted: Collection[str], folder: Path) -> list[str]:
    """Unpack the wanted files of a .tar.gz below ``folder``, with the archive's folders.

    Args:
        archive: the file.
        wanted: official names of the files to unpack; all other members are checked and skipped.
        folder: the folder for the files.

    Returns:
        The names of the files written.

    Raises:
        SourceError: the archive is truncated or damaged, or unpacks to too many bytes; a member leaves the folder, is a
            device, is sparse or has a too long name; or a wanted member occurs twice.
        StoreError: the folder cannot be written.
    """
    written, folders = list[str](), set[str]()
    with reading(archive, "a .tar.gz", _REMEDY), gzip.open(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as members:  # "r|" reads only forwards
            for member in members:
                name = tarfile.data_filter(member, str(folder)).name
                letters, left = len(os.fsencode(name)), _limit_of(archive) - stream.tell()
                if letters > bounds.NAME_BYTES or not 0 <= member.size <= left or member.issparse():
                    raise SourceError(
                        f"{archive}: member {name[:120]!r} is sparse or too large: its name has {letters} bytes vs "
                        f"{bounds.NAME_BYTES} at most, its content {member.size:,} bytes vs {left:,} at most; {_REMEDY}"
                    )
                if not member.isreg() or official_name(PurePosixPath(name).name) not in wanted:
                    continue
                name, above = PurePosixPath(name).as_posix(), {str(path) for path in PurePosixPath(name).parents}
                if name in written or name in folders or not above.isdisjoint(written):
                    raise SourceError(f"{archive}: member {name!r} occurs twice, or as file and folder; {_REMEDY}")
                _write(folder / name, _blocks(cast("IO[bytes]", members.extractfile(member)), archive))
                written.append(name)
                folders |= above
        for _ in _blocks(stream, archive):  # reads up to gzip's checksum at the end
            pass
    return written


def _write(path: Path, blocks: Iterator[bytes]) -> None:
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.writelines(blocks)


def _blocks(stream: IO[bytes] | gzip.GzipFile, archive: Path) -> Iterator[bytes]:
    """Yield a stream in blocks; reading errors name the archive, not the written file."""
    left = _limit_of(archive)
    while True:
        with reading(archive, "gzip", _REMEDY):
            block = stream.read(_BLOCK)
        if not block:
            return
        left -= len(block)
        if left < 0:
            most = _limit_of(archive)
            raise SourceError(f"{archive} unpacks to more than {most:,} bytes, far more than images would; {_REMEDY}")
        yield block


def _limit_of(archive: Path) -> int:
    """Return the largest number of bytes that an archive may unpack to."""
    return min(bounds.UNPACKED_BYTES, bounds.unpacked(archive.stat().st_size))
