"""``origin.json`` in a run's folder: code, settings and environment that produced its model.

It is written when a command or a flow ends a training, and deleted when the run is trained again. A later run that
finds the training done reads it.
"""

from __future__ import annotations

from podline.documents.ledger_entry import Origin
from podline.errors import ArtifactError
from podline.frozen import JsonObject
from podline.store.contract import Store

ORIGIN = "origin.json"


def keep_origin(store: Store, folder: str, origin: Origin) -> None:
    """Write what produced the model of a run's folder.

    Raises:
        StoreError: it cannot be written.
    """
    kept: JsonObject = {name: getattr(origin, name) for name in Origin.model_fields}
    # What changed in the data since some other run is no part of where this model comes from.
    kept["data"] = origin.data and origin.data.model_copy(update={"change": None})
    store.publish_json(f"{folder}/{ORIGIN}", Origin(**kept).model_dump(mode="json"), replace=True)


def read_origin(store: Store, folder: str) -> Origin | None:
    """Return what produced the model of a run's folder; None if no command or flow ended its training.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is damaged.
    """
    name = f"{folder}/{ORIGIN}"
    if not store.exists(name):
        return None
    try:
        return Origin.model_validate(store.read_json(name))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} does not say what produced the run ({error}); delete it") from error
