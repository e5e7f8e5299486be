"""Hashes raw files, and unpacks compressed files into a cache.

The cache folder of unpacked files has the checksum of the packed file as its name, and is published by a rename. So a
killed process leaves no incomplete folder. If two processes unpack the same file, the first rename counts.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from podline.base.entry_points import reason
from podline.base.errors import OutOfMemoryError, PodlineError, SettingsError, SourceError
from podline.data.lfs import refuse_lfs_pointer
from podline.data.shown import printable
from podline.documents.manifest import SourceFile
from podline.recipes.official import OfficialCheck, OtherFile, published
from podline.store import digests, uses
from podline.store.contract import explained
from podline.store.folder import FolderStore

_LIST = "files.json"
FACTS = "facts"
"""The name of the file with the facts about decoded images in a cache folder."""


@contextlib.contextmanager
def reading(path: Path | str, kind: str = "", remedy: str = "restore the file") -> Iterator[None]:
    """Replace an exception of the body by an error about a raw file.

    A PodlineError is raised unchanged.

    Args:
        path: name of the file in errors.
        kind: the expected format, such as ``Parquet``; if empty, only an OSError or a MemoryError is replaced.
        remedy: what to do about a file that does not have this format.

    Raises:
        SourceError: the file cannot be read, or does not have this format.
        OutOfMemoryError: the memory is too small.
    """
    try:
        yield
    except PodlineError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"out of memory while {path} is read; give this machine more memory") from error
    except Exception as error:
        if isinstance(error, OSError) and (error.errno or not kind):  # without errno, a library raised it
            raise SourceError(f"cannot read {error.filename or path}: {error.strerror or error}") from error
        if not kind:
            raise
        text = f"{path} cannot be read as {kind}: {printable(reason(error))}"
        raise SourceError(f"{text}; {remedy}" if remedy else text) from error


@contextlib.contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Replace paths of cached copies by paths of the user's files in a :class:`SourceError` of the body.

    Args:
        names: path of a copy → path of the original, which may itself be a copy with an earlier entry.
    """
    try:
        yield
    except SourceError as error:
        message = str(error)
        for copy, original in reversed([*names.items()]):
            message = message.replace(copy, original)
        raise SourceError(message) from error


class RawFile(NamedTuple):
    """A raw file: its official name, its path here, its size and checksum, and the nanosecond of its last change."""

    name: str
    path: Path
    bytes: int
    sha256: str
    modified: int

    @property
    def info(self) -> SourceFile:
        """This file's entry in the manifest."""
        return SourceFile(name=self.name, bytes=self.bytes, sha256=self.sha256)


def require_local(path: Path) -> None:
    """Refuse an address such as ``gs://bucket/prefix`` as the path of a new file or folder.

    Raises:
        SettingsError: the path begins like an address.
    """
    scheme, *rest = path.parts or (".",)
    if scheme.endswith(":"):
        address = f"{scheme}//{'/'.join(rest)}"
        raise SettingsError(f"{address} is not on this machine; give a local path, and copy the result there")


def md5_of(path: Path) -> str:
    """Return a file's md5.

    Raises:
        SourceError: the file cannot be read.
    """
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def raw_file(name: str, path: Path) -> RawFile:
    """Return a file with its size and checksum.

    Raises:
        SourceError: the file cannot be read, or is a Git LFS pointer.
    """
    with reading(path):
        refuse_lfs_pointer(path, str(path))
        status = path.stat()
        return RawFile(name, path, status.st_size, digests.of_file(path), status.st_mtime_ns)


def made_once(work: Path, key: str, make: Callable[[Path], Iterable[RawFile]]) -> tuple[RawFile, ...]:
    """Derive files from original files; reuse the files of an earlier call if their checksums match.

    Args:
        work: the cache folder.
        key: a hash of the original files, and of all else that determines the derived files.
        make: writes the files into a folder, and returns those that are verified when they are reused.

    Returns:
        The files in ``work/key``, with names relative to this folder, which is not deleted while this process runs.

    Raises:
        StoreError: the cache folder cannot be written.
    """
    folder = work / key
    with explained("write", folder):
        uses.hold(use_of(folder))
    found = _verified(folder)
    if found is not None:
        with explained("write", folder):
            os.utime(folder)  # records the use
        return found
    store = FolderStore(work)
    store.sweep()
    with store.workspace("unpack") as workspace:
        making = workspace / key
        with explained("write", making):
            making.mkdir()
        files = list(make(making))
        with explained("write", folder):
            (making / _LIST).write_text(json.dumps([file.info.model_dump() for file in files]))
            _publish(making, folder, workspace / "damaged")
    return tuple(file._replace(path=folder / file.name) for file in files)


def use_of(folder: Path) -> Path:
    """Return the path under which processes register their use of a cache folder; see :mod:`podline.store.uses`."""
    leases = folder.parent.parent / "uses"
    with explained("write", leases):
        leases.mkdir(parents=True, exist_ok=True)
    return leases / folder.name


def delete_unused(folder: Path, *, delete: bool = True) -> bool:
    """Delete a cache folder unless a living process uses the folder; return whether no process uses it.

    With ``delete=False``, only check this.

    Raises:
        StoreError: the folder cannot be deleted.
    """
    use = use_of(folder)
    with explained("delete", folder), uses.Lease(use.parent) as lease:
        free = bool(lease.take([use.name]).names)
        if free and delete and folder.exists():  # another process may have deleted it
            shutil.rmtree(folder)
    return free


def unpacked(work: Path) -> list[Path]:
    """Return the folders with unpacked files or decoded images in a cache folder."""
    return sorted(found.parent for name in (_LIST, FACTS) for found in work.glob(f"*/{name}"))


def _publish(making: Path, folder: Path, aside: Path) -> None:
    """Rename a finished folder, unless another process was faster; move a damaged folder aside first."""
    try:
        making.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if _verified(folder) is None:
            folder.rename(aside)
            making.rename(folder)


def _verified(folder: Path) -> tuple[RawFile, ...] | None:
    """Return the files of a published folder if all exist with their checksums; else None."""
    try:
        files = [SourceFile.model_validate(file) for file in json.loads((folder / _LIST).read_text())]
        found = tuple(raw_file(file.name, folder / file.name) for file in files)
    except (OSError, ValueError, TypeError, SourceError):
        return None
    return found if [file.info for file in found] == files else None


def check_official(dataset: str, raw: Iterable[RawFile], archive: RawFile | None) -> OfficialCheck | None:
    """Compare the md5 of a source's files and archive with the published md5.

    Returns:
        None for unpublished data; ``official`` is None if no md5 of these files and this archive is published.

    Raises:
        SourceError: a file cannot be read.
    """
    sums = published(dataset)
    if sums is None:
        return None
    compared = [_compared(file, sums.files[file.name]) for file in raw if file.name in sums.files]
    official = all(other is None for other in compared) if compared else None
    known = sums.archive_md5(archive.name) if archive else None
    if archive and known:
        other = _compared(archive, known)
        official = official or other is None  # official files suffice, since they may have been packed again
        compared.append(other)
    return OfficialCheck(official=official, others=tuple(other for other in compared if other is not None))


def _compared(file: RawFile, known: str) -> OtherFile | None:
    found = md5_of(file.path)
    return None if found == known else OtherFile(file=file.name, found=found, published=known)
