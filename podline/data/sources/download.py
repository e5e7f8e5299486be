"""Downloads the official archives: resumable, checked by size and md5, published by a rename."""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from podline.data.official import RemoteFile, published
from podline.data.rawfiles import md5_of
from podline.errors import PodlineError, SettingsError, SourceError, SourceUnavailableError
from podline.progress import Reporter, silent
from podline.recipes import datasets
from podline.store.contract import explained
from podline.store.locks import locked

RETRY_DELAYS = (2.0, 10.0, 30.0, 60.0)  # seconds before the second, third, … try
_TIMEOUT = 30.0
_BLOCK = 1 << 18
# Answers that say "not now": too many requests, and the server's own troubles.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


def download(dataset: str, folder: Path, reporter: Reporter | None = None, base_url: str | None = None) -> Path:
    """Fetch a data set's official files into a folder; those that are there and whole are left as they are.

    Args:
        dataset: one that is published.
        folder: made if it is not there.
        reporter: is told how many bytes are there.
        base_url: a mirror, in place of the publisher's own address.

    Returns:
        The folder, fit to be a conversion's source.

    Raises:
        SettingsError: there is no such data set, or it is not published anywhere.
        SourceError: the server does not have a file, or has another one by its md5, or one of that name is in the
            folder already and differs.
        SourceUnavailableError: the server did not answer, also after some tries; what was fetched stays for the next.
        StoreError: the folder cannot be written.
    """
    found = datasets.find(dataset)
    official = published(dataset)
    if official is None or not official.downloads:
        there = ", ".join(name for name in datasets.names() if datasets.find(name).published)
        drawn = f"; draw it with `podline data draw {folder} --dataset {dataset}`" if found.draw else ""
        raise SettingsError(f"{dataset} cannot be downloaded, only {there}{drawn}")
    return fetch_all(official.downloads, base_url or official.url, folder, reporter or silent("download"))


def fetch_all(files: Sequence[RemoteFile], base_url: str, folder: Path, reporter: Reporter) -> Path:
    """Fetch files from one place into a folder, one after the other; see :func:`download`."""
    if not base_url.startswith(("http://", "https://")):
        raise SettingsError(f"{base_url}: give an address that starts with http:// or https://")
    with explained("make the folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    finished, total = 0, sum(file.bytes for file in files)
    for file in files:
        url, target = f"{base_url.rstrip('/')}/{file.name}", folder / file.name

        def tell(done: int, before: int = finished) -> None:
            reporter.progress(before + done, total, "bytes")

        if not target.exists():
            reporter.log(f"fetching {url}")
            with _locked(folder / f"{file.name}.part") as stream:
                _fetch(file, url, stream, tell, reporter)
                _publish(file, url, stream, target)
        elif (found := md5_of(target)) != file.md5:
            raise SourceError(f"{target} is there with md5 {found} vs {file.md5} published; delete it to fetch again")
        tell(file.bytes)
        finished += file.bytes
    return folder


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[IO[bytes]]:
    """Yield the part file, open at its end, for one process at a time."""
    with contextlib.ExitStack() as stack:
        with explained("write", part):
            free = stack.enter_context(locked(part, wait=False))
            if free is None:
                raise SourceUnavailableError(f"{part} is being fetched by another process; wait for it")
            stream = stack.enter_context(part.open("ab"))
        yield stream


def _fetch(file: RemoteFile, url: str, stream: IO[bytes], tell: Callable[[int], None], reporter: Reporter) -> None:
    """Fetch what is missing of a file, in several tries; a try that got further starts the delays from the first."""
    waits = iter(RETRY_DELAYS)
    while (before := stream.tell()) < file.bytes:
        try:
            _fetch_rest(file, url, stream, tell)
        except SourceUnavailableError as error:
            waits = iter(RETRY_DELAYS) if stream.tell() > before else waits
            wait = next(waits, None)
            if wait is None:
                raise
            reporter.warn(f"{error}; trying again in {wait:g} s, from byte {stream.tell():,}")
            time.sleep(wait)


def _fetch_rest(file: RemoteFile, url: str, stream: IO[bytes], tell: Callable[[int], None]) -> None:
    """Ask once for what is missing, and append it.

    Raises:
        SourceUnavailableError: the server is busy, or the connection broke; what had come is in the file.
        SourceError: the server will never give this file.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={stream.tell()}-"})  # noqa: S310 (http by fetch_all)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:  # a server that knows no ranges sends everything
                stream.truncate(0)
                stream.seek(0)
            if response.length is not None and stream.tell() + response.length != file.bytes:
                raise _other_file(file, url, stream, f"{stream.tell() + response.length:,} bytes")
            while stream.tell() <= file.bytes and (block := response.read(_BLOCK)):
                with explained("write", stream.name):
                    stream.write(block)
                    stream.flush()
                tell(stream.tell())
    except PodlineError:
        raise
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"{url}: the server answers {error.code} {error.reason}"
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _other_file(file, url, stream, f"no byte {stream.tell():,}") from error
        if error.code in _BUSY:
            raise SourceUnavailableError(answer) from error
        raise SourceError(f"{answer}; look whether the address is right, or give a mirror's") from error
    except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
        raise SourceUnavailableError(f"{url} did not answer or broke off ({error})") from error
    if stream.tell() < file.bytes:
        raise SourceUnavailableError(f"{url} broke off after {stream.tell():,} of {file.bytes:,} bytes")


def _publish(file: RemoteFile, url: str, stream: IO[bytes], target: Path) -> None:
    """Give a fetched file its name, if it is the one that was published."""
    part = Path(stream.name)
    size, md5 = part.stat().st_size, md5_of(part)
    if (size, md5) != (file.bytes, file.md5):
        raise _other_file(file, url, stream, f"{size:,} bytes with md5 {md5}")
    with explained("write", target):
        part.rename(target)


def _other_file(file: RemoteFile, url: str, stream: IO[bytes], found: str) -> SourceError:
    """Delete what was fetched of a file that is not the published one, and say so."""
    with explained("delete", stream.name):
        Path(stream.name).unlink()
    return SourceError(
        f"{url} has {found} vs {file.bytes:,} bytes with md5 {file.md5} published; what had come was deleted; "
        "try again, or give a mirror's address"
    )
