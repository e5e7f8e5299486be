"""A digest in every JSON document, of its content and its name: it shows damage and mix-ups.

The digest is the last key of the document. It covers the name, so a document that was copied over another one is
noticed although it is whole. An object without a digest is damaged; lists have none.
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
    """Return the content of a document and its digest; anything but an object has none, and an empty one is returned.

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
    if not is_object(document):
        return document, ""
    if KEY not in document:
        raise ArtifactError(f"{where} has no {KEY}: it is not what was published; {remedy}")
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


def _digest(name: str, document: JsonObject) -> str:
    return digests.of_json({"name": name, "document": document})
