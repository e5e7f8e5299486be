"""Every JSON document in the store carries a digest of itself and of its name: damage and mix-ups have an address.

The digest is the last key of the document. It covers the name, so a document that was copied over another one is
noticed although it is whole. Documents of earlier versions have no digest, and are read as they are.
"""

from __future__ import annotations

from typing import Any

from podline import digests
from podline.errors import ArtifactError

KEY = "document_sha256"


def with_digest(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """A document as it is published under a name: with its digest."""
    return {**document, KEY: _digest(name, document)}


def without_digest(name: str, where: str, document: Any) -> Any:
    """The content of a document that was read.

    Args:
        name: its name in the store.
        where: the same as a user would write it.
        document: what was read; anything but an object has no digest.

    Raises:
        ArtifactError: it is not what was published under this name.
    """
    if not isinstance(document, dict) or KEY not in document:
        return document
    content = {key: value for key, value in document.items() if key != KEY}
    found = _digest(name, content)
    if found != document[KEY]:
        raise ArtifactError(
            f"{where} was changed since it was written: its content has the digest {found[:12]}… vs "
            f"{str(document[KEY])[:12]}… in its {KEY}; put it back, or delete it to have it made again"
        )
    return content


def _digest(name: str, document: dict[str, Any]) -> str:
    return digests.of_json({"name": name, "document": document})
