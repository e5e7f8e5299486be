"""What makes a folder or a bucket's prefix a store: a marker in its root, and the names of data sets and runs.

Other programs have folders named ``runs`` and ``datasets``, too. The first publication into an empty root writes the
marker, as does the next one into a store of Podline 1.0; without the marker nothing is deleted.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from podline.errors import StoreError

if TYPE_CHECKING:
    from podline.store.contract import Store

MARKER = "podline-store.json"
_HOLDING = re.compile(r"(datasets/[^/]+/[0-9a-f]{16}|runs/[^/]+-[0-9a-f]{12})/")


def holding_of(name: str) -> str:
    """Return the folder of the data set or run to which a name belongs, in the form ``convert`` or ``train`` names it.

    It is empty for every other name.
    """
    found = _HOLDING.match(name)
    return found[1] if found else ""


def mark(store: Store) -> None:
    """Publish the marker."""
    store.publish_json(MARKER, {"format": 1}, replace=True)


def mark_if_new(store: Store) -> None:
    """Publish the marker if there is none, and the root is empty or has a data set or a run."""
    if not store.exists(MARKER) and (next(store.listing(), None) is None or _has_holding(store)):
        mark(store)


def require_marker(store: Store) -> None:
    """Refuse to delete where there is no marker.

    Raises:
        StoreError: the root has no marker.
    """
    if not store.exists(MARKER):
        raise StoreError(
            f"{store.uri} has no {MARKER}, so it may be another program's: nothing is deleted there; if it is a store "
            f"of Podline's, run `podline store mark --root {store.uri}` first"
        )


def _has_holding(store: Store) -> bool:
    runs = (f"{folder}/spec.json" for folder in store.folders("runs"))
    datasets = (f"{each}/manifest.json" for folder in store.folders("datasets") for each in store.folders(folder))
    return any(holding_of(name) and store.exists(name) for name in itertools.chain(runs, datasets))
