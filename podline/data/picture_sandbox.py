"""Decodes untrusted pictures in sandboxes, for predictions and for the server."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import LifoQueue
from typing import NamedTuple, Self, TypeVar

import numpy as np

from podline.data import bounds
from podline.data.headers import PictureError, declared_pixels
from podline.data.pictures import Pixels, limits_of_pixels, picture_of, ready_for_many
from podline.errors import SourceError
from podline.sandbox import Limits, Sandbox, begin
from podline.store.contract import explained

Result = TypeVar("Result")

_MAKER = f"{__name__}:decoder"
_FIRST = Limits(4 * bounds.IMAGE_BYTES, 2.0)  # limits while headers are read


class PictureFile(NamedTuple):
    """The name and content of a picture file.

    Attributes:
        name: name of the file in errors.
        data: content of the file.
    """

    name: str
    data: bytes


class PictureSandboxes:
    """Processes that decode pictures; leaving the ``with`` block ends them.

    Args:
        count: number of threads that may decode at once; others wait.
    """

    def __init__(self, count: int = 1) -> None:
        self._opened = contextlib.ExitStack()
        self._free: LifoQueue[tuple[Sandbox, Path]] = LifoQueue()
        folder = self._opened.enter_context(tempfile.TemporaryDirectory(prefix="podline-pictures-"))
        for number in range(count):
            path = Path(folder) / f"{number}.pixels"
            self._free.put((self._opened.enter_context(Sandbox(_MAKER, str(path))), path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def check(self, file: PictureFile) -> None:
        """Check a picture's header, and the end of a JPEG file.

        Raises:
            SourceError: the format is not supported, the file is truncated, or the picture is too large.
        """
        with self._taken() as (sandbox, _path):
            sandbox.one(([file], False), _FIRST, file.name)

    def decode(self, files: Sequence[PictureFile]) -> list[Pixels]:
        """Decode pictures with a total of at most the largest picture's pixels: uint8 (height, width, 3), RGB.

        Raises:
            SourceError: a file is not a picture, is damaged, exceeds the limits, or the total of pixels is too large.
            StoreError: the disk has no space for the pixels.
        """
        what = files[0].name if len(files) == 1 else f"one of {len(files)} pictures"
        with self._taken() as (sandbox, path):
            sizes = sandbox.one((files, True), _FIRST, what)
            with explained("read", path), path.open("rb") as stream:
                return [np.fromfile(stream, np.uint8, 3 * tall * wide).reshape(tall, wide, 3) for tall, wide in sizes]

    @contextlib.contextmanager
    def _taken(self) -> Iterator[tuple[Sandbox, Path]]:
        each = self._free.get()
        try:
            yield each
        finally:
            self._free.put(each)


def read_picture_file(path: Path) -> PictureFile:
    """Read a picture file.

    Raises:
        SourceError: see :func:`require_picture_file`.
    """
    require_picture_file(path)
    try:
        return PictureFile(str(path), path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def require_picture_file(path: Path) -> None:
    """Refuse what cannot be a picture file, without reading it.

    Raises:
        SourceError: the file does not exist, is a folder, or is too large.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    if path.is_dir():
        raise SourceError(f"{path} is a folder; give its pictures, as {path}/*")
    if size > bounds.IMAGE_BYTES:
        raise SourceError(f"{path} has {size:,} bytes vs {bounds.IMAGE_BYTES:,} at most")


def decoder(path: str) -> Callable[[tuple[Sequence[PictureFile], bool]], list[tuple[int, ...]]]:
    """Return a function that decodes pictures and writes their pixels into a file; runs in a sandbox."""
    ready_for_many()
    stream = Path(path).open("w+b", buffering=0)  # noqa: SIM115 (as long as the process); pages are used again

    def decode(request: tuple[Sequence[PictureFile], bool]) -> list[tuple[int, ...]]:
        files, decoded = request
        declared = sum(_about(file, declared_pixels) for file in files)
        if declared > bounds.PIXELS:
            raise SourceError(
                f"{len(files)} pictures have {declared:,} pixels vs {bounds.PIXELS:,} at most; send fewer"
            )
        sizes = []
        with explained("write", path):
            stream.seek(0)
            for file in files if decoded else ():
                begin(limits_of_pixels(declared), file.name)
                pixels = _about(file, picture_of).pixels
                if stream.write(pixels.data) < pixels.nbytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                sizes.append(pixels.shape[:2])
        return sizes

    return decode


def _about(file: PictureFile, function: Callable[[bytes], Result]) -> Result:
    try:
        return function(file.data)
    except PictureError as error:
        raise SourceError(f"{file.name} {error}") from error
