"""Detects Git LFS pointers: short text files in place of files that were not fetched.

https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from pathlib import Path

from podline.base.errors import SourceError

PROBLEM = "is a Git LFS pointer, expected the file that it points to; run `git lfs pull`"
"""The error for a Git LFS pointer, as a phrase after the file's name."""

_HEAD = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(head: bytes) -> bool:
    """Return whether a file with these first bytes is a Git LFS pointer."""
    return head.startswith(_HEAD)


def refuse_lfs_pointer(path_or_head: Path | bytes, where: str) -> None:
    """Raise an error that names the file ``where`` if this path, or these first bytes, are of a Git LFS pointer.

    Raises:
        SourceError: the file is a Git LFS pointer.
        OSError: the file cannot be read.
    """
    head = path_or_head
    if isinstance(head, Path):
        with head.open("rb") as stream:
            head = stream.read(len(_HEAD))
    if is_lfs_pointer(head):
        raise SourceError(f"{where} {PROBLEM}")
