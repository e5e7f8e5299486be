"""Decodes untrusted pictures in sandboxes, for predictions and for the server."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from podline.base.arrays import Pixels
from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.headers import PictureError
from podline.data.pictures import AS_IT_IS, Form, held_of, limits_of_pixels, picture_of, ready_for_many
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import Sandbox
from podline.settings import machine as settings
from podline.store.contract import explained

Result = TypeVar("Result")

_MAKER = f"{__name__}:decoder"
_FIRST = ParseLimits(4 * bounds.IMAGE_BYTES, 2.0)  # limits while headers are read


class PictureFile(NamedTuple):
    """The content of a picture file, and the file's name in errors."""

    name: str
    data: bytes


class PictureSandbox(Sandbox):
    """Sandboxed processes that decode pictures, one for each thread that calls :meth:`decode` at the same time."""

    def __init__(self) -> None:
        super().__init__(_MAKER)

    def decode(self, files: Sequence[PictureFile], form: Form = AS_IT_IS) -> list[Pixels]:
        """Decode pictures; the setting ``parse_pixels`` limits the pixels of all of them together.

        Returns:
            For each picture uint8 of the form's shape; by default (height, width, 3) of the picture, red, green, blue.

        Raises:
            SourceError: a file is not a picture, is damaged, exceeds the limits, or the total of pixels is too large.
            StoreError: the temporary file for the pixels cannot be written.
        """
        what = files[0].name if len(files) == 1 else f"one of {len(files)} pictures"
        with explained("write", tempfile.gettempdir()), tempfile.NamedTemporaryFile() as stream:
            form = form._replace(most=settings.load().parse_pixels)
            shapes = self.one((stream.name, files, form), _FIRST, what)
            return [np.fromfile(stream, np.uint8, math.prod(shape)).reshape(shape) for shape in shapes]


def read_picture_file(path: Path) -> PictureFile:
    """Read a picture file.

    Raises:
        SourceError: the file cannot be read, is a folder, or is too large.
    """
    if path.is_dir():
        raise SourceError(f"{path} is a folder, expected a picture file; give {path}/* for all files in the folder")
    try:
        size = path.stat().st_size
        if size > bounds.IMAGE_BYTES:
            raise SourceError(f"{path} has {size:,} bytes vs {bounds.IMAGE_BYTES:,} at most; give a smaller file")
        return PictureFile(str(path), path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def decoder() -> Callable[[tuple[str, Sequence[PictureFile], Form]], list[tuple[int, ...]]]:
    """Return a function that decodes pictures into a file and returns the shapes of their pixels; runs in a child."""
    ready_for_many()
    return lambda request: _decode(*request)


def _decode(path: str, files: Sequence[PictureFile], form: Form) -> list[tuple[int, ...]]:
    held = sum(_with_name(file, partial(held_of, form=form)) for file in files)
    if held > form.most:
        raise SourceError(f"{len(files)} pictures have {held:,} pixels vs {form.most:,} at most; send fewer")
    shapes = []
    with Path(path).open("wb") as stream:
        for file in files:
            declared = partial(_begin, file.name)
            pixels = _with_name(file, partial(picture_of, declared=declared, form=form)).pixels
            stream.write(np.ascontiguousarray(pixels).data)
            shapes.append(pixels.shape)
    return shapes


def _begin(name: str, pixels: int, held: int) -> None:
    begin(limits_of_pixels(pixels, held), name)


def _with_name(file: PictureFile, function: Callable[[bytes], Result]) -> Result:
    try:
        return function(file.data)
    except PictureError as error:
        raise SourceError(f"{file.name} {error}") from error
