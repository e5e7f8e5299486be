"""Unpacks untrusted tar.gz files: only wanted members, nothing outside the folder, within bounds.

A member that could do harm makes the whole archive refused, also one that would not have been unpacked: an archive that
tries something is not the archive that it is said to be.
"""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from podline.data import bounds
from podline.data.rawfiles import RawFile, listed_files, parsing, reading, write_raw_file
from podline.errors import SourceError
from podline.sandbox import Limits, confined

_BLOCK = 1 << 20
_KIND = "gzip"
_REMEDY = "fetch the official archive again with `podline data download`"
GZIP_MAGIC = b"\x1f\x8b"
_MEMORY = 64_000_000
_RATE = 100e6  # bytes that a second of CPU time unpacks at least


def in_child(function: str, packed: Path, argument: Any, folder: Path) -> tuple[RawFile, ...]:
    """Call :func:`unpack` or :func:`decompress` in a child process with limits.

    Args:
        function: the function's name.
        packed: the archive or the .gz file.
        argument: the function's second one.
        folder: where the files go.

    Raises:
        SourceError: see the function; or it took too much memory or time.
        StoreError: the folder cannot be written.
    """
    with reading(packed):
        limits = Limits(_MEMORY, 0.4 + bounds.unpacked(packed.stat().st_size) / _RATE)
        call = f"{__name__}:listed", function, packed, argument, folder
        return listed_files(folder, confined(*call, what=str(packed), limits=limits))


def listed(function: str, packed: Path, argument: Any, folder: Path) -> list[dict[str, Any]]:
    """Return what :func:`unpack` or :func:`decompress` wrote, as JSON. Runs in the child."""
    files = (
        unpack(packed, argument, folder) if function == "unpack" else [decompress(packed, argument, folder / argument)]
    )
    return [file.info.model_dump() for file in files]


def _blocks(stream: IO[bytes] | gzip.GzipFile, archive: Path, limit: int) -> Iterator[bytes]:
    """Yield a stream in blocks; an error in reading is the archive's, not that of the file being written."""
    size = 0
    while True:
        with parsing(archive, _KIND, _REMEDY):
            block = stream.read(_BLOCK)
        if not block:
            return
        size += len(block)
        _require_size(archive, size, limit)
        yield block


def _require_size(archive: Path, size: int, limit: int) -> None:
    if size > limit:
        raise SourceError(f"{archive} unpacks to more than {limit:,} bytes, far more than images would; {_REMEDY}")


def _limit_of(archive: Path) -> int:
    """Bytes that an archive may unpack to."""
    with reading(archive):
        return min(bounds.UNPACKED_BYTES, bounds.unpacked(archive.stat().st_size))


def decompress(path: Path, name: str, target: Path) -> RawFile:
    """Unpacks a single gzip file.

    Args:
        path: the .gz file.
        name: what the unpacked file is called.
        target: where it goes.

    Raises:
        SourceError: it is truncated, damaged (its checksum is looked at), or grows out of proportion.
        StoreError: the target cannot be written.
    """
    with parsing(path, _KIND, _REMEDY), gzip.open(path) as stream:
        return write_raw_file(name, target, _blocks(stream, path, _limit_of(path)))


def unpack(archive: Path, wanted: Mapping[str, int], folder: Path) -> list[RawFile]:
    """Unpacks the wanted files of a .tar.gz, in the folders that they have there.

    Args:
        archive: the file.
        wanted: base names of the files to unpack, and the bytes that each may have; all other members are checked and
            passed over.
        folder: where they go.

    Returns:
        The files written; names are relative to ``folder``.

    Raises:
        SourceError: the archive is truncated or damaged, or a member leaves the folder, is a link or a device, comes
            twice, lies below a file, or is out of :mod:`podline.data.bounds`.
        StoreError: the folder cannot be written.
    """
    written: dict[str, RawFile] = {}
    limit, folders = _limit_of(archive), set[str]()
    with parsing(archive, "a .tar.gz", _REMEDY), gzip.open(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as members:  # which reads forward alone
            for member in members:
                _require_size(archive, stream.tell(), limit)
                name = _safe_name(archive, member, limit)
                if not member.isreg() or PurePosixPath(name).name not in wanted:
                    continue
                most = wanted[PurePosixPath(name).name]
                if member.size > most:
                    raise SourceError(
                        f"{archive}: member {name!r} has {member.size:,} bytes vs {most:,} at most; {_REMEDY}"
                    )
                above = {parent.as_posix() for parent in PurePosixPath(name).parents}
                folders |= above
                if name in written:
                    raise SourceError(f"{archive}: member {name!r} comes twice; {_REMEDY}")
                if name in folders or above & written.keys():
                    raise SourceError(f"{archive}: member {name!r}: a file there is a folder as well; {_REMEDY}")
                content = cast("IO[bytes]", members.extractfile(member))  # a regular file has content
                written[name] = write_raw_file(name, folder / name, _blocks(content, archive, limit))
                if written[name].bytes != member.size:
                    found = f"{written[name].bytes:,} bytes vs {member.size:,} in its header"
                    raise SourceError(f"{archive}: member {name!r} has {found}; {_REMEDY}")
        for _ in _blocks(stream, archive, limit):  # gzip's checksum comes at the very end
            pass
    return list(written.values())


def _safe_name(archive: Path, member: tarfile.TarInfo, limit: int) -> str:
    """Return a member's name, normalised, if nothing about the member is out of order."""
    path = PurePosixPath(member.name)
    if path.is_absolute():
        problem = "has an absolute name"
    elif ".." in path.parts:
        problem = "leads out of the folder"
    elif len(os.fsencode(member.name)) > bounds.NAME_BYTES:
        problem = f"has a name of {len(os.fsencode(member.name)):,} bytes vs {bounds.NAME_BYTES} at most"
    elif member.issym() or member.islnk():
        problem = f"is a link to {member.linkname[:120]!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        problem = "is neither a plain file nor a folder"
    elif not 0 <= member.size <= limit:
        problem = f"has an absurd size: {member.size:,} bytes vs {limit:,} at most"
    else:
        return path.as_posix()
    raise SourceError(f"{archive}: member {member.name[:120]!r} {problem}; nothing was unpacked; {_REMEDY}")
