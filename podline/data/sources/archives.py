"""Unpacking a tar.gz from a stranger: only the files that are wanted, nothing outside the folder, nothing absurd.

A member that could do harm makes the whole archive refused, also one that would not have been unpacked: an archive that
tries something is not the archive that it is said to be.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from podline.data.sources.rawfiles import RawFile, write_raw_file
from podline.errors import PodlineError, SourceError

# The official archives unpack to less than 190 MB in fewer than 20 members.
_MAX_BYTES = 4 << 30
_MAX_MEMBERS = 10_000
# What tarfile reads at once: headers of a few hundred bytes, and the blocks that are asked for below.
_BLOCK = 1 << 20

_REMEDY = "fetch the official archive again with `podline data download`"
GZIP_MAGIC = b"\x1f\x8b"


@contextlib.contextmanager
def _explained(archive: Path) -> Iterator[None]:
    """Turns whatever a damaged archive makes gzip, zlib or tarfile raise into a :class:`SourceError`."""
    try:
        yield
    except PodlineError:
        raise
    except EOFError as error:
        raise SourceError(f"{archive} is truncated: it ends in the middle of the compressed data; {_REMEDY}") from error
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        raise SourceError(f"{archive} is damaged, or not a .tar.gz ({error}); {_REMEDY}") from error
    except OSError as error:
        raise SourceError(f"cannot read {archive}: {error.strerror or error}") from error
    except Exception as error:  # tarfile parses headers with int(), decode() and recursion, and lets their errors out
        raise SourceError(f"{archive} has a damaged header ({type(error).__name__}: {error}); {_REMEDY}") from error


class _Forward(io.RawIOBase):
    """The decompressed archive, read forward in small pieces: what a hostile header asks for beyond that is refused."""

    def __init__(self, archive: Path, stream: gzip.GzipFile) -> None:
        self._archive, self._stream = archive, stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _BLOCK:
            raise SourceError(f"{self._archive}: a header claims {size:,} bytes vs {_BLOCK:,} at most; {_REMEDY}")
        return self._stream.read(size)

    def seek(self, place: int, whence: int = 0, /) -> int:
        if whence or not self.tell() <= place <= _MAX_BYTES:
            raise SourceError(
                f"{self._archive}: a header leads from byte {self.tell():,} to {place:,}, back or too far; {_REMEDY}"
            )
        return self._stream.seek(place)


def _blocks(stream: IO[bytes] | gzip.GzipFile, archive: Path) -> Iterator[bytes]:
    """A stream in blocks; an error in reading is the archive's, not that of the file being written."""
    while True:
        with _explained(archive):
            block = stream.read(_BLOCK)
        if not block:
            return
        yield block


def decompress(path: Path, name: str, target: Path, limit: int = 1 << 30) -> RawFile:
    """Unpacks a single gzip file.

    Args:
        path: the .gz file.
        name: what the unpacked file is called.
        target: where it goes.
        limit: bytes that it may have.

    Raises:
        SourceError: it is truncated, damaged (its checksum is looked at), or grows out of proportion.
        StoreError: the target cannot be written.
    """

    def bounded(stream: gzip.GzipFile) -> Iterator[bytes]:
        for block in _blocks(stream, path):
            if stream.tell() > limit:
                raise SourceError(f"{path} unpacks to more than {limit:,} bytes, which {name} never has")
            yield block

    with _explained(path), gzip.open(path) as stream:
        return write_raw_file(name, target, bounded(stream))


def unpack(archive: Path, wanted: Collection[str], folder: Path) -> list[RawFile]:
    """Unpacks the wanted files of a .tar.gz, in the folders that they have there.

    Args:
        archive: the file.
        wanted: base names of the files to unpack; all other members are checked and passed over.
        folder: where they go.

    Returns:
        The files written; names are relative to ``folder``.

    Raises:
        SourceError: the archive is truncated or damaged, or a member leaves the folder, is a link or a device, comes
            twice, or has an absurd size.
        StoreError: the folder cannot be written.
    """
    written: dict[str, RawFile] = {}
    with _explained(archive), gzip.open(archive) as stream:
        with tarfile.open(fileobj=_Forward(archive, stream), mode="r:") as members:
            for count, member in enumerate(members, start=1):
                name = _safe_name(archive, member, count)
                if not member.isreg() or PurePosixPath(name).name not in wanted:
                    continue
                if name in written:
                    raise SourceError(f"{archive}: member {name!r} comes twice; {_REMEDY}")
                content = cast("IO[bytes]", members.extractfile(member))  # a regular file has content
                written[name] = write_raw_file(name, folder / name, _blocks(content, archive))
                if written[name].bytes != member.size:
                    found = f"{written[name].bytes:,} bytes vs {member.size:,} in its header"
                    raise SourceError(f"{archive}: member {name!r} has {found}; {_REMEDY}")
        _read_to_end(archive, stream)
    return list(written.values())


def _safe_name(archive: Path, member: tarfile.TarInfo, count: int) -> str:
    """A member's name, normalised, if nothing about the member is out of order."""
    path = PurePosixPath(member.name)
    if path.is_absolute():
        problem = "has an absolute name"
    elif ".." in path.parts:
        problem = "leads out of the folder"
    elif len(member.name) > 255:
        problem = f"has a name of {len(member.name):,} letters"
    elif member.issym() or member.islnk():
        problem = f"is a link to {member.linkname[:120]!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        problem = "is neither a plain file nor a folder"
    elif not 0 <= member.size <= _MAX_BYTES:
        problem = f"has an absurd size: {member.size:,} bytes vs {_MAX_BYTES:,} at most"
    elif count > _MAX_MEMBERS:
        problem = f"is one of more than {_MAX_MEMBERS:,}"
    else:
        return path.as_posix()
    raise SourceError(f"{archive}: member {member.name[:120]!r} {problem}; nothing was unpacked; {_REMEDY}")


def _read_to_end(archive: Path, stream: gzip.GzipFile) -> None:
    """Reads what follows the last member, because gzip's checksum comes at the very end."""
    for _ in _blocks(stream, archive):
        if stream.tell() > _MAX_BYTES:
            raise SourceError(f"{archive} goes on for more than {_MAX_BYTES:,} bytes; {_REMEDY}")
