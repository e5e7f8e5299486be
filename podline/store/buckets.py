"""A store in a bucket of Google Cloud Storage.

A bucket shows an object complete or not at all, like a rename in a folder. Each upload additionally sends:

- the generation that it replaces (none for a new name), so that two writers cannot mix, and a repeated request changes
  nothing;
- the crc32c of the content, with which the service detects corrupted bytes;
- the sha256 of the content as metadata, with the crc32c, so that the sha256 is known later without a download.

All requests go through google-cloud-storage, which retries with jitter until the deadline. ``STORAGE_EMULATOR_HOST``
names an emulator. Google's library finds the credentials; this module never reads them.
"""

# Google's library has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
from google.api_core import exceptions as api
from google.cloud.storage.blob import Blob
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from podline.base.errors import (
    ArtifactError,
    PodlineError,
    SettingsError,
    StoreError,
    StoreUnavailableError,
    TakenError,
)
from podline.base.progress import alive
from podline.base.stopwatch import measured
from podline.settings.machine import load
from podline.store import digests
from podline.store.cache import Cache, scratch_of
from podline.store.cloud_storage import client, cloud_explained, worth_trying
from podline.store.contract import BUCKET_SCHEME, LOST, MARKER, Listed, Store, explained
from podline.store.prefetch import in_order

# Attempts to replace an object; another writer may change it between a lookup and the upload.
_ATTEMPTS_TO_REPLACE = 5
# Larger files are uploaded in pieces of this size, each of which can be retried.
_PIECE_BYTES = 8 * 2**20
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 60.0
_BLOCK_BYTES = 2**20
# Larger objects are downloaded in pieces of this size, which limits the memory of each download.
_FETCHED_BYTES = 8 * 2**20
# Download the stored bytes, to which size and checksum refer, without decoding a Content-Encoding. A single read is
# used, since the library's own loop takes the interpreter's lock for every 8 KiB.
_AS_STORED: dict[str, Any] = {"raw_download": True, "single_shot_download": True}
# A byte range has no checksum of its own.
_UNCHECKED: dict[str, Any] = {"checksum": None, **_AS_STORED}
_BUCKET_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_SHA256, _CRC32C = "podline-sha256", "podline-crc32c"
_LISTED_FIELDS = "items(name,size,updated,generation,crc32c,metadata),nextPageToken"


def split_uri(uri: str) -> tuple[str, str]:
    """Split ``gs://bucket/prefix`` into the bucket and the prefix, without leading and trailing slashes.

    Raises:
        SettingsError: the bucket is missing or its name is invalid, or a component of the prefix is empty or ``..``.
    """
    bucket, _, prefix = uri.removeprefix(BUCKET_SCHEME).partition("/")
    prefix = prefix.strip("/")
    if not bucket or "//" in prefix or ".." in prefix.split("/"):
        raise SettingsError(f"{uri} is not a store in a bucket; give gs://bucket or gs://bucket/prefix")
    if not _BUCKET_NAME.fullmatch(bucket):
        raise SettingsError(
            f"{uri}: {bucket!r} is not a valid bucket name (lower-case letters, digits, '-', '_' and '.', with a "
            "letter or digit at both ends); correct the name"
        )
    return bucket, prefix


class BucketStore(Store):
    """A store of the objects below a prefix in a bucket."""

    def __init__(self, uri: str, option: str = "--root") -> None:
        """Open a store with this machine's settings; sends no request.

        Args:
            uri: ``gs://bucket`` or ``gs://bucket/prefix``.
            option: the command-line option that named the store, for errors.

        Raises:
            SettingsError: the URI is invalid.
            CredentialsError: this machine has no credentials.
        """
        bucket, prefix = split_uri(uri)
        settings = load().store
        self.uri = f"{BUCKET_SCHEME}{bucket}" + (f"/{prefix}" if prefix else "")
        self.settings = settings
        self._option = option
        self.parallel = settings.parallel
        self._prefix = f"{prefix}/" if prefix else ""
        cache = Path(settings.cache).expanduser().absolute()
        self.scratch = self.beside = scratch_of(self.uri, settings.cache)
        self._cache = _cache(cache, settings.cache_limit)
        with self._explained("open", self.uri):
            self._bucket = client().bucket(bucket, user_project=settings.user_project or None)
        # The first half of the deadline is for single requests, the second for repeated transfers.
        retry = DEFAULT_RETRY.with_delay(0.5, 15.0, 2.0).with_timeout(settings.deadline / 2)
        self._again = retry.with_predicate(worth_trying)
        timeout = (min(_CONNECT_SECONDS, settings.deadline), min(_ANSWER_SECONDS, settings.deadline))
        self._options: dict[str, Any] = {"retry": retry, "timeout": timeout}

    def where(self, name: str) -> str:
        """Return the URI of a name; see :meth:`Store.where`."""
        self._require_inside(name)
        return f"{self.uri}/{name}"

    @measured("store")
    def find(self, name: str) -> Listed | None:
        """See :meth:`Store.find`."""
        with self._explained("read", self.where(name)):
            blob = self._bucket.get_blob(self._name(name), **self._options)
        if blob is None:
            self._require_bucket()
        return None if blob is None else self._listed(blob)

    @measured("store")
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """See :meth:`Store.sha256`; an object that another program wrote must be downloaded."""
        there = found or self._there(name)
        if there.sha256:
            return there.sha256
        with explained("read", self.where(name)):
            return digests.of_file(self.local(name, there))

    @measured("store")
    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return a verified copy in the local cache; see :meth:`Store.local`."""
        there = found or self._there(name)
        key = f"{self._bucket.name}/{self._name(name)}#{there.version}"
        return self._cache.get(
            key, there.bytes, lambda copy: _crc32c(copy) == there.crc32c, lambda copy: self._fetch(name, there, copy)
        )

    @measured("store")
    def locals(self, names: Iterable[str]) -> list[Path]:
        """See :meth:`Store.locals`."""
        wanted = list(names)
        found = self._looked_at(wanted)
        return list(in_order(lambda name: self.local(name, found.get(name)), wanted, self.parallel))

    def _looked_at(self, names: Sequence[str]) -> dict[str, Listed]:
        """Return name → size, version and checksums of all objects in each folder that has two or more of the names.

        One list request per thousand objects of a folder.
        """
        folders = Counter(name.rpartition("/")[0] for name in names)
        shared = [folder for folder, count in folders.items() if count > 1]
        return {found.name: found for folder in shared for found in self.listing(folder, delimiter="/")}

    @measured("store")
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """See :meth:`Store.read_bytes`."""
        return self._read(name, version, checksum="crc32c", **_AS_STORED)

    @measured("store")
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """See :meth:`Store.read_range`."""
        return self._read(name, version, start=start, end=start + length - 1, **_UNCHECKED) if length else b""

    def _read(self, name: str, version: str = "", **how: Any) -> bytes:
        reference = self._reference(name, int(version) if version else None)
        with self._explained("read", self.where(name)):
            try:
                return self._again(reference.download_as_bytes)(**how, **self._options)
            except api.RequestRangeNotSatisfiable:
                return b""
            except api.NotFound:
                raise self._missing(name, version) from None

    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """Yield an object's content, fetching several pieces in parallel; see :meth:`Store.read_pieces`."""
        with self._explained("read", self.where(name)):
            yield from self._pieces(name, self._there(name, version), length, self.parallel)

    def _pieces(self, name: str, there: Listed, length: int, threads: int) -> Iterator[bytes]:
        checksum, starts = google_crc32c.Checksum(), range(0, there.bytes, length)
        for piece in in_order(lambda start: self.read_range(name, start, length, there.version), starts, threads):
            checksum.update(piece)
            alive()
            yield piece
        if (found := _written(checksum)) != there.crc32c:
            raise DataCorruption(None, f"got crc32c {found}, expected {there.crc32c}")

    def listing(self, prefix: str = "", *, delimiter: str | None = None) -> Iterator[Listed]:
        """See :meth:`Store.listing`; with the delimiter ``/``, names in subfolders are excluded."""
        top = f"{self._prefix}{prefix.rstrip('/')}/" if prefix else self._prefix
        with self._explained("list", self.where(prefix) if prefix else self.uri):
            blobs = self._bucket.list_blobs(
                prefix=top, delimiter=delimiter, fields=_LISTED_FIELDS, page_size=1000, **self._options
            )
            # Some consoles create folder objects, whose names end in a slash.
            for blob in blobs:
                alive()
                if not blob.name.endswith("/") and blob.name != f"{self._prefix}{MARKER}":
                    yield self._listed(blob)

    @measured("store")
    def folders(self, prefix: str) -> list[str]:
        """See :meth:`Store.folders`."""
        top = self._name(f"{prefix}/")
        with self._explained("list", self.where(prefix)):
            blobs = self._bucket.list_blobs(prefix=top, delimiter="/", fields="prefixes,nextPageToken", **self._options)
            deque(blobs, maxlen=0)  # the prefixes are known after the last page
            return sorted(each.removeprefix(self._prefix).rstrip("/") for each in blobs.prefixes)

    def now(self) -> float:
        """Read the service's time from a temporary object; see :meth:`Store.now`."""
        name = f"jobs/clock-{uuid.uuid4().hex[:12]}"
        self.publish_bytes(name, b"")
        published = self._there(name).published
        self.delete(name)
        return published

    @measured("store")
    def _publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        del flush  # acknowledged data are safe
        with explained("read", source):
            content = _content(name, source)
        for _ in range(_ATTEMPTS_TO_REPLACE):
            there = self.find(name)
            if there is not None and _is_same(there, content):
                return
            if there is not None and not replace and (there.bytes, there.crc32c) != (content.bytes, content.crc32c):
                raise self._taken(name)
            with contextlib.suppress(TakenError):  # another process wrote it
                self._replace(source, content, there.version if there is not None else "")
                return
        raise StoreUnavailableError(
            f"cannot write {self.where(name)}: other processes replaced it {_ATTEMPTS_TO_REPLACE} times meanwhile; "
            "try again later"
        )

    @measured("store")
    def _swap(self, source: Path | None, name: str, version: str, *, flush: bool) -> str:
        del flush
        if source is None:
            if version:
                self._delete(name, version)
            return ""
        with explained("read", source):
            content = _content(name, source)
        return self._replace(source, content, version)

    def _replace(self, source: Path, content: Listed, version: str) -> str:
        with self._explained("write", self.where(content.name)):
            try:
                return self._again(self._upload)(source, content, int(version or 0))
            except (api.PreconditionFailed, api.NotFound) as error:
                if isinstance(error, api.NotFound):  # the last response to a large upload was lost
                    self._require_bucket()
        there = self.find(content.name)
        if there is None or not _is_same(there, content):
            raise self._taken(content.name)
        return there.version  # the upload succeeded, but its response was lost

    def _taken(self, name: str) -> TakenError:
        return TakenError(f"{self.where(name)} already exists with other content; delete it, or choose another --root")

    def flush(self, names: Iterable[str]) -> None:
        """See :meth:`Store.flush`."""

    @measured("store")
    def _delete(self, name: str, version: str) -> None:
        # A repeated request cannot hit a newer object.
        there = version or getattr(self.find(name), "version", "")
        with self._explained("delete", self.where(name)), contextlib.suppress(api.NotFound, api.PreconditionFailed):
            if there:
                self._reference(name).delete(if_generation_match=int(there), **self._options)

    def _upload(self, source: Path, content: Listed, generation: int) -> str:
        blob = self._reference(content.name)
        blob.chunk_size = _PIECE_BYTES
        blob.metadata = {_SHA256: content.sha256, _CRC32C: content.crc32c}
        with _Read(source) as stream:
            blob.upload_from_file(
                stream,
                size=content.bytes,
                content_type="application/octet-stream",
                if_generation_match=generation,
                checksum="crc32c",
                **self._options,
            )
        if blob.crc32c != content.crc32c:
            raise DataCorruption(None, f"got crc32c {blob.crc32c}, sent {content.crc32c}")
        return str(blob.generation)

    def _fetch(self, name: str, there: Listed, copy: Path) -> None:
        """Download an object into ``copy``, an existing file of the same size; retry if the checksum differs."""

        def fetch() -> None:
            with copy.open("r+b") as stream:
                for piece in self._pieces(name, there, _FETCHED_BYTES, 1):
                    stream.write(piece)

        with self._explained("read", self.where(name)), explained("write to the cache", copy):
            self._again(fetch)()

    def _there(self, name: str, version: str = "") -> Listed:
        found = self.find(name)
        if found is None or (version and found.version != version):
            raise self._missing(name, version)
        return found

    def _missing(self, name: str, version: str = "") -> PodlineError:
        """Return the error for a name that does not exist, or no longer has the given version."""
        there = self.find(name)
        if there is not None and version:
            return ArtifactError(
                f"{self.where(name)} has generation {there.version} now, but had {version} when it was first read; "
                "run the command again"
            )
        return StoreError(f"cannot read {self.where(name)}: it does not exist; {LOST}")

    def _require_bucket(self) -> None:
        """Raise an error if the bucket itself does not exist."""
        if self.uri not in _known:
            with self._explained("open the bucket of", self.uri):
                listed = self._bucket.list_blobs(max_results=1, **self._options)
                next(iter(listed), None)
            _known.add(self.uri)

    def _reference(self, name: str, generation: int | None = None) -> Blob:
        return self._bucket.blob(self._name(name), generation=generation)

    def _name(self, name: str) -> str:
        self._require_inside(name)
        return f"{self._prefix}{name}"

    def _listed(self, blob: Blob) -> Listed:
        name = (blob.name or "").removeprefix(self._prefix)
        published = blob.updated.timestamp() if blob.updated else 0.0
        size, generation, crc32c = int(blob.size or 0), str(blob.generation), blob.crc32c or ""
        return Listed(name, size, published, generation, _sha256_of(blob), crc32c)

    def _explained(self, action: str, where: str) -> Any:
        return cloud_explained(action, where, self.settings.deadline, self._option)


# URIs of stores whose buckets are known to exist.
_known: set[str] = set()


# The caches that this process has open, by folder and limit.
_caches: dict[tuple[Path, int], Cache] = {}


def _cache(folder: Path, limit: int) -> Cache:
    return _caches.get((folder, limit)) or _caches.setdefault((folder, limit), Cache(folder, limit))


def forget_clients() -> None:
    """Close all clients, so that the next one reads the environment (credentials, emulator address) again."""
    for cache in _caches.values():
        cache.release()
    _caches.clear()
    _known.clear()
    if client.cache_info().currsize:
        client().close()
    client.cache_clear()


class _Read(io.FileIO):
    """A local file that reports with each read that this process is alive."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as :class:`io.FileIO` does, and report that this process is alive."""
        alive()
        return super().read(-1 if size is None else size) or b""


def _content(name: str, path: Path) -> Listed:
    """Read a local file once, in constant memory; return its size and checksums, with the name ``name``."""
    crc32c, sha256, size = google_crc32c.Checksum(), hashlib.sha256(), 0
    with _Read(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            crc32c.update(block)
            sha256.update(block)
            size += len(block)
    return Listed(name, size, 0.0, "", sha256.hexdigest(), _written(crc32c))


def _is_same(there: Listed, content: Listed) -> bool:
    return (there.bytes, there.crc32c, there.sha256) == (content.bytes, content.crc32c, content.sha256)


def _crc32c(path: Path) -> str:
    """Return the crc32c of a file in the service's base64 form; this takes a tenth of the time of a sha256."""
    checksum = google_crc32c.Checksum()
    with _Read(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            checksum.update(block)
    return _written(checksum)


def _written(checksum: google_crc32c.Checksum) -> str:
    return base64.b64encode(checksum.digest()).decode()


def _sha256_of(blob: Blob) -> str:
    """Return the sha256 in an object's metadata; empty if missing, or if the bytes have changed since."""
    metadata = blob.metadata or {}
    return metadata.get(_SHA256, "") if metadata.get(_CRC32C) == blob.crc32c else ""
