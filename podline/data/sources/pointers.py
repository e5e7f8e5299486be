"""Recognises Git LFS pointers: small texts that stand for files that were not fetched.

https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from pathlib import Path

from podline.errors import SourceError

IS_POINTER = "is a Git LFS pointer vs the file itself; run `git lfs pull` in its repository"
_SIGN = b"version https://git-lfs.github.com/spec/"


def is_pointer(data: bytes) -> bool:
    """Return whether a file's content is a pointer."""
    return data.startswith(_SIGN)


def refuse_pointer(path: Path | str) -> None:
    """Check that a file is no pointer.

    Raises:
        SourceError: it is one, or cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            pointer = is_pointer(stream.read(len(_SIGN)))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}") from error
    if pointer:
        raise SourceError(f"{path} {IS_POINTER}")
