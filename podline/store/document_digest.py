"""A digest in every JSON document, of its content and its name: it shows damage and mix-ups.

The digest is the last key of the document. It covers the name, so a document that was copied over another one is
noticed although it is whole. Documents of earlier versions have no digest, and are read as they are.
"""

from __future__ import annotations

import json

from podline.errors import ArtifactError
from podline.frozen import Json, JsonObject, is_object
from podline.store import digests

KEY = "document_sha256"
REMEDY = "put it back, or delete it to have it made again"


def with_digest(name: str, document: JsonObject) -> JsonObject:
    """A document as it is published under a name: with its digest."""
    return {**document, KEY: _digest(name, document)}


def read(name: str, where: str, data: bytes, remedy: str = REMEDY) -> Json:
    """The content of a document; see :func:`read_with_digest`."""
    return read_with_digest(name, where, data, remedy)[0]


def read_with_digest(name: str, where: str, data: bytes, remedy: str = REMEDY) -> tuple[Json, str]:
    """The content of a document and its digest, which is empty where it has none, as anything but an object.

    Args:
        name: its name in the store.
        where: the same as a user would write it.
        data: its bytes.
        remedy: what to do if it is damaged.

    Raises:
        ArtifactError: it is not JSON, or not what was published under this name.
    """
    try:
        document: Json = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where} is not valid JSON ({error}); {remedy}") from error
    if not is_object(document) or KEY not in document:
        return document, ""
    content: JsonObject = {**document}
    del content[KEY]
    try:
        found = _digest(name, content)
    except ValueError as error:
        raise ArtifactError(f"{where} holds a number that is not finite ({error}); {remedy}") from error
    if found != document[KEY]:
        raise ArtifactError(
            f"{where} was changed since it was written: its content has the digest {found[:12]}… vs "
            f"{str(document[KEY])[:12]}… in its {KEY}; {remedy}"
        )
    return content, found


def has_digest(data: bytes) -> bool:
    """Whether a document carries a digest: those of earlier versions do not."""
    return f'"{KEY}"'.encode() in data


def _digest(name: str, document: JsonObject) -> str:
    return digests.of_json({"name": name, "document": document})
