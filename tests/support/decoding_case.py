"""Decoders that fail, for tests; the children of the sandbox import this module."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from podline.data import picture_sandbox, pictures
from podline.data.pictures import PictureError
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import ParseLimits
from podline.data.sources import decoding

Decode = Callable[[Any], Any]


def limited_decoder(*arguments: Any) -> Decode:
    """Return a decoder with a megabyte of memory for a large image."""
    decoding.limits_of_pixels = lambda pixels, _held, _wait: ParseLimits(10**6 if pixels > 10**6 else 10**9, 60)
    return decoding.decoder(*arguments)


def crashing_decoder(*arguments: Any) -> Decode:
    """Return a decoder that crashes at an image of 7×7 pixels."""
    known = decoding.picture_of

    def crash(data: bytes, *limits: Any) -> Any:
        picture = known(data, *limits)
        return ctypes.string_at(0) if (picture.width, picture.height) == (7, 7) else picture

    decoding.picture_of = crash
    return decoding.decoder(*arguments)


def damaged_at_first(*arguments: Any) -> Decode:
    """Return a decoder that takes every image for damaged once."""
    known, seen = decoding.picture_of, set[bytes]()

    def decode(data: bytes, *limits: Any) -> Any:
        picture = known(data, *limits)
        if data not in seen:
            seen.add(data)
            raise PictureError("is damaged: it cannot be decoded")
        return picture

    decoding.picture_of = decode
    return decoding.decoder(*arguments)


def limited_pictures(*arguments: Any) -> Decode:
    """Return a decoder that may take no memory for a picture of 7×7 pixels."""
    known = pictures.picture_of

    def decode(data: bytes, **given: Any) -> Any:
        picture = known(data, **given)
        if picture.width == 7:
            begin(ParseLimits(1_000_000, 60.0))
            bytearray(500_000_000)
        return picture

    picture_sandbox.picture_of = decode
    return picture_sandbox.decoder(*arguments)
