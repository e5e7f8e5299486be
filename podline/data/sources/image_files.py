"""Reads image files, plain or in a zip file, and looks at them.

Run as a module this is a helper: it looks at the files that it is asked about, until its standard input ends. It
imports nothing of Podline's but what it takes to read a JPEG's markers, and is at work in a tenth of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podline.data.heap import keep_what_is_freed
from podline.data.sources.headers import inspect_image
from podline.data.sources.jpeg import Jpeg, JpegError
from podline.data.sources.lfs import PROBLEM, is_lfs_pointer

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
HEADER_BYTES = _LOCAL_HEADER.size
"""Of what stands before a member's name in a zip file."""

NAME_BYTES = 256
"""What lies between a member's header and its content, a name and some fields, is rarely longer."""

_LARGE_BYTES = 4_000_000
"""A file as large as this comes in large requests anyway, and many of them would drive each other out of memory."""


class MemberError(ValueError):
    """What is wrong with a zip file's member; a phrase that follows the place."""


class ImageFile(NamedTuple):
    """Where an image's bytes are on this machine.

    Attributes:
        path: the image's file, or the zip file.
        size: of the image's file, in bytes.
        offset: of the member's header in the zip file; None for a file of its own.
        stored: bytes of the member in the zip file.
        deflated: whether they are compressed.
    """

    path: str
    size: int
    offset: int | None
    stored: int
    deflated: bool

    def expect(self) -> None:
        """Has the disk bring what is read in a moment, and does not wait for it.

        Read without that, a file of 160 kB that is not in memory comes in several small requests, each of which is
        waited for, and takes nearly twice as long. See ``POSIX_FADV_WILLNEED`` in posix_fadvise(2); without such a call
        nothing comes any sooner. If the file cannot be opened, whoever reads it says so.
        """
        if not hasattr(os, "posix_fadvise") or max(self.size, self.stored) >= _LARGE_BYTES:
            return
        size = 0 if self.offset is None else HEADER_BYTES + NAME_BYTES + self.stored  # 0 is all that there is
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, self.offset or 0, size, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def read(self) -> bytes:
        """The image's file, whatever its checksum.

        Raises:
            OSError: it cannot be read.
            MemberError: no such member is there.
        """
        with open(self.path, "rb") as stream:  # noqa: PTH123 (a Path for each takes a tenth of the time)
            if self.offset is None:
                return stream.read(self.size + 1)
            stream.seek(self.offset)
            stream.seek(self.offset + content_starts(stream.read(HEADER_BYTES)))
            data = stream.read(self.stored)
        return inflated(data, self.size) if self.deflated else data


def content_starts(header: bytes) -> int:
    """How many bytes after a member's header its content starts.

    Raises:
        MemberError: it is no header.
    """
    if len(header) < HEADER_BYTES or header[:4] != b"PK\3\4":
        raise MemberError("no member starts there")
    *_, name, extra = _LOCAL_HEADER.unpack(header)
    return HEADER_BYTES + name + extra


def inflated(data: bytes, size: int) -> bytes:
    """A compressed member's content, of which no more than one byte too many is unpacked.

    Raises:
        MemberError: it cannot be unpacked.
    """
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size + 1)
    except zlib.error as error:
        raise MemberError(f"what is there cannot be unpacked ({error})") from error


class Seen(NamedTuple):
    """What an image's bytes are.

    Attributes:
        size: how many.
        crc: their CRC-32.
        jpeg: what the file says of itself; None if it is of no use.
        problem: why; a phrase that follows the file's name, or empty.
    """

    size: int
    crc: int
    jpeg: Jpeg | None
    problem: str


def seen(data: bytes) -> Seen:
    """Looks at an image's bytes."""
    if is_lfs_pointer(data):
        return Seen(len(data), zlib.crc32(data), None, PROBLEM)
    try:
        return Seen(len(data), zlib.crc32(data), inspect_image(data), "")
    except JpegError as error:
        return Seen(len(data), zlib.crc32(data), None, str(error))


def expect_all(files: Iterable[ImageFile | None]) -> None:
    """Has the disk bring some files; None is one that it does not have."""
    for file in files:
        if file is not None:
            file.expect()


def seen_in_a_row(files: Sequence[ImageFile | None]) -> list[Seen | None]:
    """Looks at some files; None where there is none, or it cannot be read, which whoever asked will find out."""
    expect_all(files)
    return [file and _seen_if_there(file) for file in files]


def _seen_if_there(file: ImageFile) -> Seen | None:
    try:
        return seen(file.read())
    except (OSError, MemberError):
        return None


def main() -> None:
    """Answers each line of the standard input, a JSON list of files, by a line with what they are."""
    keep_what_is_freed()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked gets it as well, and ends the input
    for line in sys.stdin.buffer:
        answer = seen_in_a_row([file and ImageFile(*file) for file in json.loads(line)])
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
