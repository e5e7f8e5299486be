"""Annotation files as bounded streams, plain or in a zip file, hashed while they are read."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from typing import IO

from podline.data.sources import bounds
from podline.data.sources.coco_images import open_zip
from podline.data.sources.deeplabcut import as_coco, is_table
from podline.data.sources.lfs import refuse_lfs_pointer
from podline.data.sources.rawfiles import reading
from podline.data.sources.remote import AnyPath, RemotePath
from podline.data.sources.shown import printable
from podline.errors import PodlineError, SourceError


class HashedStream:
    """A stream that is read once, from its beginning to its end, and hashed on the way.

    Attributes:
        shown: what errors call it.
        size: bytes read.
        digest: of them.
    """

    def __init__(self, stream: IO[bytes], shown: str, most: int) -> None:
        """Begins to read.

        Args:
            stream: what is read.
            shown: what errors call it.
            most: bytes that it may have.
        """
        self.shown, self.size, self.digest = shown, 0, hashlib.sha256()
        self._stream, self._most = stream, most

    def read(self, size: int) -> bytes:
        """So many bytes, or fewer at the end.

        Raises:
            SourceError: they are more than they may be, cannot be read, or are a Git LFS pointer.
        """
        with _explained(self.shown):
            block = self._stream.read(size)
        if not self.size:
            refuse_lfs_pointer(block, self.shown)
        self.size += len(block)
        if self.size > self._most:
            raise SourceError(f"{self.shown} has more than {self._most:,} bytes, far more than annotations have")
        self.digest.update(block)
        return block


@contextlib.contextmanager
def _explained(shown: str) -> Iterator[None]:
    """Turns whatever a damaged archive makes zipfile or zlib raise into a :class:`SourceError`."""
    try:
        with reading(shown):
            yield
    except PodlineError:
        raise
    except Exception as error:
        raise SourceError(f"{shown} is damaged ({printable(error)}); fetch it again") from error


@contextlib.contextmanager
def open_annotations(path: AnyPath, member: str = "") -> Iterator[HashedStream]:
    """A file of annotations; one in a bucket arrives whole, with its checksum, before it is read.

    Args:
        path: the file, a zip file, or DeepLabCut's table or a folder with its tables.
        member: its name in the zip file.

    Raises:
        SourceError: it cannot be read, or is out of :mod:`podline.data.sources.bounds`.
    """
    shown = f"{path}{'/' * bool(member)}{member}"
    most = bounds.ANNOTATION_BYTES
    with contextlib.ExitStack() as opened:
        if member:
            archive = opened.enter_context(open_zip(path))
            with _explained(shown):
                found = archive.getinfo(member)
                most = min(most, bounds.unpacked(found.compress_size))
                if found.file_size > most:
                    raise SourceError(f"{shown} has {found.file_size:,} bytes vs {most:,} at most")
                stream: IO[bytes] = archive.open(found)
        else:
            with reading(shown):
                if is_table(path) or path.is_dir():
                    stream = io.BytesIO(as_coco(path))
                else:
                    stream = io.BytesIO(path.read_bytes()) if isinstance(path, RemotePath) else path.open("rb")
        yield HashedStream(opened.enter_context(stream), shown, most)
