"""Remembers which files were verified, and whether they were changed since.

Hashing a data set each time before it is read would cost as much as reading it. So whoever has verified a file notes
its *sign*: size, times of modification and of change, inode, device. The time of change (``st_ctime``, see stat(2)) is
set by the kernel with every write, rename, ``touch``, ``chmod`` or link, and no call sets it back, as ``cp -p`` and
``rsync`` do with the time of modification. A file with the sign that was noted is taken as it is, any other is hashed.

The notes are one document for each data set below ``.podline/verified/<boot>``. They hold until the machine starts
again: a power cut may leave a file with its sign and without its bytes. A file whose time of change is less than two
seconds ago is not noted, since another change might get the same time. Notes that are damaged, gone, or of a system
that does not say when it started count as none: the files are hashed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from podline.documents.manifest import FileInfo, Manifest, ShardInfo
from podline.errors import ArtifactError, PodlineError
from podline.frozen import Frozen
from podline.progress import Reporter, silent
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore
from podline.store.page_cache import let_go, may_keep

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Enough for the file systems that keep whole or even seconds.
_RECENT_NS = 2_000_000_000
_KEPT_SECONDS = 30 * 24 * 3600
# A disk of its own speed is the limit with more.
_AT_ONCE = 4
_NEWS_SECONDS = 5.0
_REMEDY = "put it back, or run `podline convert` again: it writes what is damaged anew, and nothing else"


class Sign(NamedTuple):
    """What changes when a file does; times in nanoseconds."""

    bytes: int
    modified: int
    changed: int
    inode: int
    device: int


class SeenFile(NamedTuple):
    """A file's sign, and whether it is so old that any later change has another one."""

    sign: Sign
    settled: bool


class Note(NamedTuple):
    """That a file with this sign has this sha256."""

    sha256: str
    sign: Sign


class _Notes(Frozen):
    files: dict[str, Note]


class VerifiedFiles:
    """Files of a data set that were verified: what was read of them counts as long as they are unchanged."""

    def __init__(self, folder: Path, signs: Mapping[str, Sign]) -> None:
        """Files with the signs that they had when they were verified."""
        self._folder, self._signs = folder, signs

    def require_unchanged(self) -> None:
        """Looks at all of them once more.

        Raises:
            ArtifactError: one was changed since.
        """
        for file, sign in self._signs.items():
            path = self._folder / file
            found = look(path)
            if found is None or found.sign != sign:
                raise ArtifactError(
                    f"{path} was changed while it was read ({_difference(sign, found)}); what was made of it is not "
                    "kept; give the command again: it verifies the file and goes on from what was saved before"
                )


def look(path: Path) -> SeenFile | None:
    """A file as it is now, looked at before it is read; None if it is gone.

    Raises:
        StoreError: it cannot be opened.
    """
    try:
        with explained("read", path), path.open("rb") as stream:
            return _look(stream)
    except PodlineError:
        if path.exists():
            raise
        return None


def look_at(store: Store, name: str) -> SeenFile | None:
    """Like :meth:`look`, by a name in a store; None of what is in a bucket."""
    return look(store.local(name)) if isinstance(store, FolderStore) else None


def verify(
    store: FolderStore,
    dataset: str,
    manifest: Manifest,
    files: Iterable[ShardInfo | FileInfo],
    reporter: Reporter | None = None,
) -> VerifiedFiles:
    """Makes sure that files of a data set are what its manifest says; hashes those that may have been changed.

    Args:
        store: the store.
        dataset: the data set's folder in it.
        manifest: of the data set.
        files: as the manifest has them.
        reporter: told of files that are hashed, every few seconds.

    Raises:
        ArtifactError: one is gone or has another content.
        StoreError: one cannot be read.
    """
    folder, noted = store.local(dataset), _read(store, dataset)
    stays = may_keep(sum(shard.bytes for shard in manifest.shards))
    signs: dict[str, Sign] = {}
    hashed: dict[str, tuple[str, SeenFile]] = {}
    pending: list[ShardInfo | FileInfo] = []
    for info in files:
        found = _require_size(folder / info.file, look(folder / info.file), info)
        if noted.get(info.file) == Note(info.sha256, found.sign):
            signs[info.file] = found.sign
        else:
            pending.append(info)
    if pending:
        news, done, told = reporter or silent(), 0, time.monotonic()
        with ThreadPoolExecutor(min(_AT_ONCE, len(pending))) as threads:
            looks = threads.map(lambda info: _hashed(folder / info.file, info, stays=stays), pending)
            for info, found in zip(pending, looks, strict=True):
                signs[info.file], hashed[info.file] = found.sign, (info.sha256, found)
                done += 1
                if time.monotonic() - told > _NEWS_SECONDS:
                    told = time.monotonic()
                    news.progress(done, len(pending), "files verified")
    note(store, dataset, hashed)
    return VerifiedFiles(folder, signs)


def note(store: Store, folder: str, verified: Mapping[str, tuple[str, SeenFile | None]]) -> None:
    """Notes files of a data set that were verified.

    Args:
        store: the store; of a bucket, nothing is noted.
        folder: the data set's in it; of other folders, nothing is noted.
        verified: file → its sha256, and what it looked like before it was read.
    """
    if not (isinstance(store, FolderStore) and folder.startswith("datasets/")):
        return
    noted = _read(store, folder)
    new: dict[str, Note] = {}
    for file, (sha256, before) in verified.items():
        if before is None or not before.settled or noted.get(file) == Note(sha256, before.sign):
            continue
        after = look(store.local(f"{folder}/{file}"))
        if after is not None and after.sign == before.sign:
            new[file] = Note(sha256, before.sign)
    if not (new and _boot()):
        return
    # Notes of files that are gone go as well. Of two processes at once, one's may be lost: those files are hashed.
    there = {file: each for file, each in noted.items() if store.local(f"{folder}/{file}").exists()}
    document = _Notes(files=there | new).model_dump(mode="json")
    with contextlib.suppress(PodlineError, OSError):  # a store that only can be read is verified each time
        store.publish_json(_name(store, folder), document, replace=True, flush=False)
        _remove_old(store)


def _hashed(path: Path, info: ShardInfo | FileInfo, *, stays: bool) -> SeenFile:
    with explained("read", path), path.open("rb") as stream:
        before = _require_size(path, _look(stream), info)
        found = hashlib.file_digest(stream, "sha256").hexdigest()
        after = _look(stream)
    if not stays:
        let_go(path)
    if found != info.sha256:
        raise ArtifactError(
            f"{path} has sha256 {found[:12]}… vs {info.sha256[:12]}… in the manifest: it was changed since it was "
            f"written; {_REMEDY}"
        )
    if after.sign != before.sign:
        raise ArtifactError(f"{path} is being changed while it is read ({_difference(before.sign, after)}); {_REMEDY}")
    return before


def _require_size(path: Path, found: SeenFile | None, info: ShardInfo | FileInfo) -> SeenFile:
    if found is None:
        raise ArtifactError(f"{path} is gone; {_REMEDY}")
    if found.sign.bytes != info.bytes:
        raise ArtifactError(f"{path} has {found.sign.bytes} bytes vs {info.bytes} in the manifest; {_REMEDY}")
    return found


def _look(stream: BinaryIO) -> SeenFile:
    now = time.time_ns()
    # Of the open file: a network file system asks its server when a file is opened.
    facts = os.fstat(stream.fileno())
    sign = Sign(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)
    return SeenFile(sign, settled=sign.changed + _RECENT_NS < now)


def _difference(before: Sign, after: SeenFile | None) -> str:
    if after is None:
        return "it is gone"
    pairs = zip(Sign._fields, before, after.sign, strict=True)
    return next(f"{name} {old} vs {new} now" for name, old, new in pairs if old != new)


def _read(store: FolderStore, folder: str) -> dict[str, Note]:
    name = _name(store, folder)
    if not (_boot() and store.exists(name)):
        return {}
    try:
        document, digest = store.read_document(name)
        return _Notes.model_validate(document).files if digest else {}
    except (PodlineError, ValueError):
        return {}


def _name(store: FolderStore, folder: str) -> str:
    return f"{store.scratch.name}/verified/{_boot()}/{folder}.json"


def _remove_old(store: FolderStore) -> None:
    """Removes notes of data sets that are gone, and those that machines have not touched for a month."""
    top = store.scratch / "verified"
    mine = top / _boot()
    for path in mine.rglob("*.json"):
        if not store.local(path.relative_to(mine).with_suffix("").as_posix()).is_dir():
            path.unlink(missing_ok=True)
    for other in top.iterdir():
        if other != mine and all(time.time() - each.stat().st_mtime > _KEPT_SECONDS for each in other.rglob("*")):
            shutil.rmtree(other, ignore_errors=True)


@functools.cache
def _boot() -> str:
    """What names the time since the machine was started; empty where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
