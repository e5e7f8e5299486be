"""Checksums: of files, of bytes, and of anything that goes to JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from podline.frozen import Json


def of_bytes(data: bytes | bytearray | memoryview) -> str:
    """The sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """The sha256 of a file's content, in hexadecimal; read in blocks, so memory is flat.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def of_json(document: Json) -> str:
    """The sha256 of a JSON document in one canonical form: the order of keys makes no difference."""
    return of_bytes(json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
