"""``origin.json`` in a run's folder: code, settings and environment that produced its model.

It is written when the training has come to its end: a report tells of it before the run's entry is there, and a later
run that finds the training done is by what that training was of.
"""

from __future__ import annotations

from podline.documents.completion import completion_name
from podline.documents.ledger_entry import Origin
from podline.errors import ArtifactError
from podline.frozen import JsonObject
from podline.store.contract import Store

ORIGIN = "origin.json"

# Beside the origin: the digest that the training's completion record carries.
_RECORD = "record_sha256"


def keep_origin(store: Store, folder: str, origin: Origin) -> None:
    """Writes what produced the model of a run's folder.

    Raises:
        StoreError: it cannot be written.
    """
    kept: JsonObject = {name: getattr(origin, name) for name in Origin.model_fields}
    # What changed in the data since some other run is no part of where this model comes from.
    kept["data"] = origin.data and origin.data.model_copy(update={"change": None})
    document = Origin(**kept).model_dump(mode="json") | {_RECORD: _record_sha256(store, folder)}
    store.publish_json(f"{folder}/{ORIGIN}", document, replace=True)


def read_origin(store: Store, folder: str) -> Origin | None:
    """What produced the model of a run's folder.

    None if no command ended its training, or if the file tells of an earlier training of the run.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is damaged.
    """
    name = f"{folder}/{ORIGIN}"
    if not store.exists(name):
        return None
    try:
        document = store.read_json(name)
        if of_another_training(store, folder, document):
            return None
        return Origin.model_validate({key: value for key, value in document.items() if key != _RECORD})
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} does not say what produced the run ({error}); delete it") from error


def of_another_training(store: Store, folder: str, document: JsonObject) -> bool:
    """Whether an origin tells of another training than the one whose completion record is there."""
    return document.get(_RECORD) != _record_sha256(store, folder)


def _record_sha256(store: Store, folder: str) -> str:
    name = completion_name(folder, "train")
    return store.read_document(name)[1] if store.exists(name) else ""
