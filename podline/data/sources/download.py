"""Downloads the official archives: resumes, verifies size and md5, and publishes by a rename."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from podline.base.errors import PodlineError, SettingsError, SourceError, SourceUnavailableError
from podline.base.progress import Reporter, silent
from podline.data.rawfiles import md5_of, require_local
from podline.recipes import datasets
from podline.recipes.official import RemoteFile, published
from podline.store.contract import explained
from podline.store.locks import locked

RETRY_DELAYS = (2.0, 10.0, 30.0, 60.0)  # seconds before the second, third, … try
_TIMEOUT = 30.0
_BLOCK = 1 << 18
_WEB_ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9a-f:]+\])(:\d{1,5})?(/\S*)?", re.IGNORECASE)
# HTTP statuses of temporary problems: too many requests, and server errors.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


def download(dataset: str, folder: Path, reporter: Reporter | None = None, base_url: str | None = None) -> Path:
    """Download a data set's official files into a folder; complete files stay unchanged.

    Args:
        dataset: a published data set.
        folder: the folder, created if missing.
        reporter: reports the number of downloaded bytes.
        base_url: a mirror, instead of the publisher's address.

    Returns:
        The folder, which a conversion can use as its source.

    Raises:
        SettingsError: the data set does not exist or cannot be downloaded, ``base_url`` is not a web address, or the
            folder is not on this machine.
        SourceError: there is no such host, its certificate is invalid, or it refuses a file; or a file on the server or
            in the folder does not have the published md5.
        SourceUnavailableError: the server did not answer in several tries, or another process downloads the file; the
            next call resumes the download.
        StoreError: the folder cannot be written.
    """
    found = datasets.find(dataset)
    official = published(dataset)
    if official is None or not official.downloads:
        there = ", ".join(name for name in datasets.names() if datasets.find(name).published)
        drawn = f"; generate it with `podline data draw {folder} --dataset {dataset}`" if found.draw else ""
        raise SettingsError(f"{dataset} cannot be downloaded, expected one of {there}{drawn}")
    return fetch_all(official.downloads, base_url or official.url, folder, reporter or silent("download"))


def fetch_all(files: Sequence[RemoteFile], base_url: str, folder: Path, reporter: Reporter) -> Path:
    """Download files from one address into a folder, one after the other; see :func:`download`."""
    if not _WEB_ADDRESS.fullmatch(base_url):
        raise SettingsError(f"{base_url} is not a web address; give an address that starts with http:// or https://")
    require_local(folder)
    with explained("create the folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    finished, total = 0, sum(file.bytes for file in files)
    for file in files:
        url, target = f"{base_url.rstrip('/')}/{file.name}", folder / file.name

        def tell(done: int, before: int = finished) -> None:
            reporter.progress(before + done, total, "bytes")

        if not target.exists():
            reporter.log(f"downloading {url}")
            with _locked(folder / f"{file.name}.part") as stream:
                _fetch(file, url, stream, tell, reporter)
                _publish(file, url, stream, target)
        elif (found := md5_of(target)) != file.md5:
            raise SourceError(
                f"{target} has md5 {found} vs {file.md5} published; delete the file, and run the command again"
            )
        tell(file.bytes)
        finished += file.bytes
    return folder


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[IO[bytes]]:
    """Open the part file at its end and lock it for this process."""
    with contextlib.ExitStack() as stack:
        with explained("write", part):
            free = stack.enter_context(locked(part, wait=False))
            if free is None:
                raise SourceUnavailableError(f"{part} is being downloaded by another process; wait until it has ended")
            stream = stack.enter_context(part.open("ab"))
        yield stream


def _fetch(file: RemoteFile, url: str, stream: IO[bytes], tell: Callable[[int], None], reporter: Reporter) -> None:
    """Download the missing bytes of a file in several tries; progress resets the delays between tries.

    A server whose name cannot be looked up before the first byte is not tried again: there is no network.
    """
    waits, began = iter(RETRY_DELAYS), stream.tell()
    while (before := stream.tell()) < file.bytes:
        try:
            _fetch_rest(file, url, stream, tell)
        except SourceUnavailableError as error:
            waits = iter(RETRY_DELAYS) if stream.tell() > before else waits
            wait = next(waits, None)
            if wait is None or (stream.tell() == began and isinstance(_cause(error.__cause__), socket.gaierror)):
                raise
            reporter.warn(f"{error}; trying again in {wait:g} s, from byte {stream.tell():,}")
            time.sleep(wait)


def _fetch_rest(file: RemoteFile, url: str, stream: IO[bytes], tell: Callable[[int], None]) -> None:
    """Request the missing bytes once, and append them.

    Raises:
        SourceUnavailableError: the server is busy, or the connection broke; the received bytes are kept.
        SourceError: the server cannot provide this file.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={stream.tell()}-"})  # noqa: S310 (http by fetch_all)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:  # a server without ranges sends the whole file
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
            raise _other_file(file, url, stream, f"at most {stream.tell():,} bytes") from error
        if error.code in _BUSY:
            raise SourceUnavailableError(answer) from error
        raise SourceError(f"{answer}; check the address, or give a mirror's address") from error
    except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
        cause = _cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise SourceError(f"{url}: {cause.strerror}; set SSL_CERT_FILE, or give a mirror's address") from error
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            raise SourceError(
                f"{url}: no such host ({cause.strerror}); check the network and the address, or copy {file.name} into "
                f"{Path(stream.name).parent} from another machine"
            ) from error
        raise SourceUnavailableError(f"{url}: the server did not answer, or the connection broke ({cause})") from error
    if stream.tell() < file.bytes:
        raise SourceUnavailableError(f"{url}: the connection broke after {stream.tell():,} of {file.bytes:,} bytes")


def _cause(error: BaseException | None) -> BaseException | str | None:
    """Return the cause in a URLError, an error or a text; return any other error unchanged."""
    return error.reason if isinstance(error, urllib.error.URLError) else error


def _publish(file: RemoteFile, url: str, stream: IO[bytes], target: Path) -> None:
    """Rename the part file to its final name if its size and md5 are the published ones."""
    part = Path(stream.name)
    size, md5 = part.stat().st_size, md5_of(part)
    if (size, md5) != (file.bytes, file.md5):
        raise _other_file(file, url, stream, f"{size:,} bytes with md5 {md5}")
    with explained("write", target):
        part.rename(target)


def _other_file(file: RemoteFile, url: str, stream: IO[bytes], found: str) -> SourceError:
    """Delete the received bytes of a file that differs from the published file, and return the error."""
    with explained("delete", stream.name):
        Path(stream.name).unlink()
    return SourceError(
        f"{url} has {found} vs {file.bytes:,} bytes with md5 {file.md5} published; the received bytes were deleted; "
        "try again, or give a mirror's address"
    )
