"""Compute checksums of bytes and files, and add and verify the digest in each JSON document of a store.

The digest is the last key of a document. It also covers the name, so that a valid document copied over another one is
detected. A document without a digest, or that is not a JSON object, counts as damaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from podline.base.errors import ArtifactError
from podline.base.frozen import Json, JsonObject, is_object
from podline.base.progress import alive

_BLOCK_BYTES = 2**20
KEY = "document_sha256"
REMEDY = "put it back, or delete it to have it made again"


def of_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the sha256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal, with constant memory.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            alive()
    return digest.hexdigest()


def of_json(document: Json) -> str:
    """Return the sha256 of a JSON document in canonical form, which ignores the order of keys."""
    return of_bytes(_canonical(document))


def of_list(members: Iterable[Json]) -> str:
    """Return what :func:`of_json` returns for a list, with constant memory: members are consumed one by one."""
    digest, stream, comma = hashlib.sha256(b"["), iter(members), b""
    while some := list(islice(stream, 1_000)):
        digest.update(comma + _canonical(some)[1:-1])
        comma = b","
    digest.update(b"]")
    return digest.hexdigest()


def with_digest(name: str, document: JsonObject) -> JsonObject:
    """Return a document with its digest added, for publication under ``name``."""
    return {**document, KEY: _digest(name, document)}


def read_document(name: str, where: str, data: bytes, remedy: str = REMEDY) -> tuple[JsonObject, str]:
    """Return a document without its digest, and the digest.

    Args:
        name: name of the document in the store.
        where: location of the document as a user would write it, for errors.
        data: the bytes of the document.
        remedy: what to do about a damaged document, for errors.

    Raises:
        ArtifactError: the document is not a JSON object, or its content does not match its digest.
    """
    try:
        document: Json = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where} is not valid JSON ({error}); {remedy}") from error
    if not is_object(document):
        raise ArtifactError(f"{where} is not a JSON object; {remedy}")
    if KEY not in document:
        raise ArtifactError(f"{where} has no {KEY}: it was changed after its publication; {remedy}")
    content: JsonObject = {**document}
    expected = str(content.pop(KEY))
    try:
        found = _digest(name, content)
    except ValueError as error:
        raise ArtifactError(f"{where} holds a number that is not finite ({error}); {remedy}") from error
    if found != expected:
        raise ArtifactError(
            f"{where} was changed since it was written: its content has the digest {found[:12]}…, but its {KEY} is "
            f"{expected[:12]}…; {remedy}"
        )
    return content, found


def _digest(name: str, document: JsonObject) -> str:
    return of_json({"name": name, "document": document})


def _canonical(document: Json) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
