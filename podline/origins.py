"""``origin.json``, in a run's folder: what produced its model. The ledger's entry of the run says the same.

It is written when the training has come to its end: a report tells of it before the run's entry is there, and a later
run that finds the training done is by what that training was of.
"""

from __future__ import annotations

from typing import Any

from podline.errors import ArtifactError
from podline.ledger_entry import Origin
from podline.storage import Store

ORIGIN = "origin.json"


def keep_origin(store: Store, folder: str, origin: Origin) -> None:
    """Writes what produced the model of a run's folder.

    Raises:
        StoreError: it cannot be written.
    """
    kept: dict[str, Any] = {name: getattr(origin, name) for name in Origin.model_fields}
    # What changed in the data since some other run is no part of where this model comes from.
    kept["data"] = origin.data and origin.data.model_copy(update={"change": None})
    store.publish_json(f"{folder}/{ORIGIN}", Origin(**kept).model_dump(mode="json"), replace=True)


def read_origin(store: Store, folder: str) -> Origin | None:
    """What produced the model of a run's folder; None if the run was trained by a Podline that did not tell.

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
