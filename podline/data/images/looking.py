"""Looks at image files: decodes each, fits it and writes its pixels to a place of its own in one file.

Processes do it, which read the files themselves: threads would wait for Python's lock, since of a small image more is
done with it than without. An image on which a decoder crashes costs itself alone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from podline.cores import usable_cores
from podline.data.coco_pixels import ready_for_many
from podline.data.fitting import fitted
from podline.data.images.fits import Fit
from podline.data.images.items import Item, Place
from podline.data.pictures import PictureError, looks_like_picture, picture_of
from podline.data.sources import bounds
from podline.errors import ChildKilledError, PodlineError, SourceError, StoreError
from podline.store.contract import explained
from podline.store.prefetch import in_order

_AT_ONCE = 64  # images that a process is asked for
_BYTES_AT_ONCE = 8_000_000
_FOR_A_PROCESS = 400  # images: to start one takes as long as a few hundred of them
# Of CPU time, to decode an image: the slowest that bounds allow takes some seconds.
_SECONDS = 120.0
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_SHUT = (errno.EACCES, errno.EPERM, errno.EISDIR)


class Look(NamedTuple):
    """What an image's file is.

    Attributes:
        sha256: of its bytes.
        pixels_sha256: of its pixels as they were written.
        bytes: its size.
        width: of the picture as it is shown.
        height: likewise.
        turned: whether EXIF turns it.
        picture: whether it begins as a picture does.
        reason: why it cannot be decoded; empty if it can.
    """

    sha256: bytes = b""
    pixels_sha256: bytes = b""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False
    picture: bool = False
    reason: str = ""


Asked = str | Place | bytes
"""An image: the path of its file, where it is in a file, or its file's content."""


@dataclass
class Bench:
    """Decodes images into a file of pixels.

    Attributes:
        pixels: the file, which is there.
        shape: of every image.
        fit: see :func:`podline.data.fitting.fitted`.
        seconds: of CPU time, after which SIGPROF ends this process if an image is not decoded; 0 for no limit.
    """

    pixels: str
    shape: tuple[int, int, int]
    fit: Fit
    seconds: float = 0.0
    _files: dict[str, int] = field(default_factory=dict)

    def look_at(self, first: int, asked: Sequence[Asked]) -> list[Look]:
        """Looks at some images.

        Args:
            first: the number of the first one's pixels; those of the others come after it.
            asked: the images.

        Raises:
            OSError: one cannot be read.
            StoreError: nothing can be written.
            MemoryError: there is too little memory to decode one.
        """
        return [self._look(row, one) for row, one in enumerate(asked, first)]

    def _look(self, row: int, one: Asked) -> Look:
        try:
            data = one if isinstance(one, bytes) else self._read(one)
        except OSError as error:
            if error.errno in _GONE:
                return Look(reason="there is no such file")
            if error.errno in _SHUT:
                return Look(reason="may not be read")
            raise
        sha256, size = hashlib.sha256(data).digest(), len(data)
        if size > bounds.IMAGE_BYTES:
            reason = f"has more than {bounds.IMAGE_BYTES:,} bytes"
            return Look(sha256, bytes=size, picture=looks_like_picture(data), reason=reason)
        try:
            signal.setitimer(signal.ITIMER_PROF, self.seconds)
            picture = picture_of(data)
        except PictureError as error:
            reason = str(error) if data else "is empty"
            return Look(sha256, bytes=size, picture=looks_like_picture(data), reason=reason)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        pixels = np.ascontiguousarray(fitted(picture.pixels, self.shape, self.fit)).data
        self._write(pixels, row * pixels.nbytes)
        height, width = picture.pixels.shape[:2]
        return Look(sha256, hashlib.sha256(pixels).digest(), size, width, height, picture.turned, picture=True)

    def _read(self, place: str | Place) -> bytes:
        """At most one byte more than an image may have."""
        if isinstance(place, str):
            file = os.open(place, os.O_RDONLY)
            try:
                return _read(file, place, os.fstat(file).st_size, 0)
            finally:
                os.close(file)
        return _read(self._file(place.path, os.O_RDONLY), place.path, place.bytes, place.start)

    def _write(self, pixels: memoryview, start: int) -> None:
        left = pixels.cast("B")
        with explained("write", self.pixels):
            while left:  # where the disk gets full, a part is written, and no error is raised
                count = os.pwrite(self._file(self.pixels, os.O_WRONLY), left, start)
                left, start = left[count:], start + count

    def _file(self, path: str, how: int) -> int:
        """A file that is read or written many times, open until the process ends; of archives, the last one."""
        if path not in self._files:
            for other in [name for name in self._files if name != self.pixels]:
                os.close(self._files.pop(other))
            self._files[path] = os.open(path, how)
        return self._files[path]


def _read(file: int, path: str, size: int, start: int) -> bytes:
    """Return so many bytes of a file, but at most one more than an image may have.

    Raises:
        OSError: it cannot be read, or has become shorter.
    """
    size, parts = min(size, bounds.IMAGE_BYTES + 1), list[bytes]()
    while size > 0:
        part = os.pread(file, size, start)
        if not part:
            raise OSError(errno.EIO, f"{size:,} bytes fewer than it had", path)
        parts.append(part)
        size, start = size - len(part), start + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Lookers:
    """Processes that look at images, as many as there are cores; they end with the body of the ``with`` statement.

    Attributes:
        processes: all that were started.
    """

    def __init__(self, bench: Bench, processes: int) -> None:
        self._bench = bench
        self.processes: list[subprocess.Popen[bytes]] = []
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for _ in range(processes):
            self._free.put(self._start())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()  # it has nothing that could be half done
            process.communicate()

    def look_at(self, first: int, asked: Sequence[Asked]) -> list[Look]:
        """Has the next process that is free look at some images; several threads may call it.

        See :meth:`Bench.look_at`.

        Raises:
            SourceError: a file cannot be read.
            StoreError: nothing can be written.
            ChildKilledError: there is too little memory to decode one image by itself.
        """
        process = self._free.get()
        try:
            answer = _ask(process, first, asked)
        except (OSError, EOFError, pickle.UnpicklingError):  # the process is gone
            answer = None
        code = 0
        try:
            if answer is None or isinstance(answer, MemoryError):
                process.kill()  # it is gone, or about to be
                code = process.wait()
                process = self._start()
        finally:
            self._free.put(process)
        if isinstance(answer, OSError):
            raise SourceError(f"cannot read {answer.filename or 'the images'}: {answer.strerror or answer}")
        if isinstance(answer, PodlineError):
            raise answer
        if isinstance(answer, list):
            return answer
        if len(asked) > 1:
            return [look for row, one in enumerate(asked, first) for look in self.look_at(row, [one])]
        if answer is None:
            slow = f"is not decoded in {self._bench.seconds or _SECONDS:g} seconds of CPU time"
            reason = slow if code == -signal.SIGPROF else "is damaged: the decoder crashes on it"
            return [Look(picture=True, reason=reason)]
        raise ChildKilledError(
            f"out of memory while {_shown(asked[0])} is decoded; give this machine more memory, or leave the image out"
        )

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603 (our own)
        self.processes.append(process)
        _send(process.stdin, (self._bench.pixels, self._bench.shape, self._bench.fit, self._bench.seconds or _SECONDS))
        return process


def looks(items: Iterable[Item], bench: Bench) -> Iterator[tuple[Item, int, Look]]:
    """Looks at images, in their order.

    Yields:
        Each item, the number of its pixels in the file (-1 of one that is not looked at), and what it is: one that has
        a reason already is looked at if its data are known.

    Raises:
        SourceError: a file cannot be read.
        StoreError: nothing can be written.
        ChildKilledError: there is too little memory.
    """
    stream = iter(items)
    first = list(islice(stream, _FOR_A_PROCESS))
    processes = usable_cores() if len(first) == _FOR_A_PROCESS else 1
    parts = _parts(chain(first, stream))
    with Lookers(bench, processes) as lookers:
        yield from chain.from_iterable(in_order(partial(_looked_at, lookers), parts, processes + 1))


class _Part(NamedTuple):
    """Some items; ``first`` is the number of the pixels of the first one that is looked at."""

    first: int
    items: list[Item]


def _parts(items: Iterable[Item]) -> Iterator[_Part]:
    part = _Part(0, [])
    size = 0
    for item in items:
        part.items.append(item)
        size += len(item.data) if isinstance(item.data, bytes) else 0
        if len(part.items) == _AT_ONCE or size > _BYTES_AT_ONCE:
            yield part
            part, size = _Part(part.first + sum(map(_is_wanted, part.items)), []), 0
    if part.items:
        yield part


def _looked_at(lookers: Lookers, part: _Part) -> list[tuple[Item, int, Look]]:
    wanted = [item for item in part.items if _is_wanted(item)]
    found = zip(count(part.first), lookers.look_at(part.first, [_asked(item.data) for item in wanted]))
    return [(item, *next(found)) if _is_wanted(item) else (item, -1, Look()) for item in part.items]


def _is_wanted(item: Item) -> bool:
    return not item.reason or bool(item.data)


def _asked(data: Place | bytes) -> Asked:
    """A path alone is sent and read back in a fraction of the time."""
    return data.path if isinstance(data, Place) and data.bytes < 0 else data


def _shown(asked: Asked) -> str:
    if isinstance(asked, bytes):
        return f"an image of {len(asked):,} bytes"
    return asked if isinstance(asked, str) else asked.path


def _ask(process: subprocess.Popen[bytes], first: int, asked: Sequence[Asked]) -> Any:
    _send(process.stdin, (first, list(asked)))
    return pickle.load(process.stdout)  # type: ignore[arg-type]  # noqa: S301 (our own process)


def _send(stream: Any, message: object) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def serve() -> None:
    """Answers what a parent asks, until it is gone."""
    ready_for_many()
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    bench = Bench(*pickle.load(source))  # noqa: S301 (our parent)
    while True:
        try:
            first, asked = pickle.load(source)  # noqa: S301 (our parent)
        except EOFError:
            return
        try:
            answer: object = bench.look_at(first, asked)
        except (OSError, MemoryError, StoreError) as error:
            answer = error
        _send(target, answer)
