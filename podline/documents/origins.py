"""``origin.json`` in a run's folder: the code, settings and environment that produced its model.

A command or flow writes this file at the end of a training. A new training of the run deletes it. A later run that
reuses the training reads it.
"""

from __future__ import annotations

import contextlib

from podline.base.errors import TakenError
from podline.base.frozen import JsonObject
from podline.documents.ledger_entry import Origin
from podline.documents.reading import read_model
from podline.store.contract import Store

ORIGIN = "origin.json"


def keep_origin(store: Store, folder: str, origin: Origin, version: str = "") -> None:
    """Write the origin of the model in a run's folder, unless another process has written one.

    ``version`` is the store's version of the file to replace; empty if the file does not exist.

    Raises:
        StoreError: the file cannot be written.
    """
    kept: JsonObject = {name: getattr(origin, name) for name in Origin.model_fields}
    # The change of the data since another run is not part of the model's origin.
    kept["data"] = origin.data and origin.data.model_copy(update={"change": None})
    with contextlib.suppress(TakenError):
        store.swap_json(f"{folder}/{ORIGIN}", Origin(**kept).model_dump(mode="json"), version)


def read_origin(store: Store, folder: str) -> Origin | None:
    """Return the origin of the model in a run's folder; None if it was not recorded.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{ORIGIN}"
    return read_model(store, name, Origin, "the origin of a model", "delete it") if store.exists(name) else None
