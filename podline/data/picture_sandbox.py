"""Decodes untrusted pictures in sandboxes, for predictions and for the server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from podline.data import bounds
from podline.data.headers import PictureError, declared_pixels
from podline.data.pictures import Pixels, limits_of_pixels, picture_of, ready_for_many
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import Limits
from podline.data.sandbox.pool import Sandbox
from podline.errors import SourceError
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


class PictureSandbox(Sandbox):
    """Processes that decode pictures, one for each thread that decodes at the same time."""

    def __init__(self) -> None:
        super().__init__(_MAKER)

    def check(self, file: PictureFile) -> None:
        """Check a picture's header, and the end of a JPEG file.

        Raises:
            SourceError: the format is not supported, the file is truncated, or the picture is too large.
        """
        self.one(("", [file]), _FIRST, file.name)

    def decode(self, files: Sequence[PictureFile]) -> list[Pixels]:
        """Decode pictures with a total of at most the largest picture's pixels: uint8 (height, width, 3), RGB.

        Raises:
            SourceError: a file is not a picture, is damaged, exceeds the limits, or the total of pixels is too large.
            StoreError: the disk has no space for the pixels.
        """
        what = files[0].name if len(files) == 1 else f"one of {len(files)} pictures"
        with explained("write", tempfile.gettempdir()), tempfile.NamedTemporaryFile() as stream:
            sizes = self.one((stream.name, files), _FIRST, what)
            return [np.fromfile(stream, np.uint8, 3 * tall * wide).reshape(tall, wide, 3) for tall, wide in sizes]


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


def decoder() -> Callable[[tuple[str, Sequence[PictureFile]]], list[tuple[int, ...]]]:
    """Return a function that decodes pictures and writes their pixels into a file, if one is named; runs in a child."""
    ready_for_many()

    def decode(request: tuple[str, Sequence[PictureFile]]) -> list[tuple[int, ...]]:
        path, files = request
        declared = sum(_about(file, declared_pixels) for file in files)
        if declared > bounds.PIXELS:
            raise SourceError(
                f"{len(files)} pictures have {declared:,} pixels vs {bounds.PIXELS:,} at most; send fewer"
            )
        sizes = []
        if path:
            with Path(path).open("wb") as stream:
                for file in files:
                    begin(limits_of_pixels(declared), file.name)
                    pixels = _about(file, picture_of).pixels
                    stream.write(pixels.data)
                    sizes.append(pixels.shape[:2])
        return sizes

    return decode


def _about(file: PictureFile, function: Callable[[bytes], Result]) -> Result:
    try:
        return function(file.data)
    except PictureError as error:
        raise SourceError(f"{file.name} {error}") from error
