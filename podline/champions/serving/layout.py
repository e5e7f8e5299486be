"""Copies a champion's SavedModel into the layout of TensorFlow Serving and KServe: ``<folder>/<recipe>/<number>/``."""

from __future__ import annotations

from pathlib import Path

from podline.base.errors import ArtifactError, StoreError
from podline.documents.champions import Crowned, champion, recipes
from podline.documents.completion import Artifact, read_artifact, read_completion
from podline.documents.promotion import SAVED_MODEL, read_promotion
from podline.ledger.inventory.catalogue import train_result
from podline.stages.table import PROMOTE
from podline.store import digests
from podline.store.contract import Store, explained
from podline.store.local_files import appearing


def require_champion(store: Store, recipe: str) -> Crowned:
    """Return a recipe's champion.

    Raises:
        StoreError: the recipe has no champion.
        ArtifactError: the history of champions is damaged.
    """
    found = champion(store, recipe)
    if found is None:
        known = ", ".join(recipes(store)) or "none"
        raise StoreError(
            f"{store.uri}: {recipe} has no champion; `podline models promote RUN` makes one; recipes with a champion: "
            f"{known}"
        )
    return found


def require_unchanged(store: Store, entry: Crowned) -> None:
    """Refuse a champion if the weights of its run changed since the promotion.

    Raises:
        StoreError: the run is missing, or not finished.
        ArtifactError: the weights are not the champion's.
    """
    found = train_result(store, entry.run).weights_sha256
    if problem := entry.other_weights(store.where(f"runs/{entry.run}"), found):
        raise ArtifactError(
            f"{problem}; restore the files, roll back (`podline models rollback`), or promote a run again"
        )


def saved_model(store: Store, entry: Crowned) -> dict[str, Artifact]:
    """Return path within the SavedModel → artifact for the files of a champion's SavedModel.

    Raises:
        StoreError: the promotion was interrupted before it ended, or its documents cannot be read.
        ArtifactError: the files are not the champion's.
    """
    run = f"runs/{entry.run}"
    where = store.where(f"{run}/{SAVED_MODEL}")
    remedy = f"`podline models promote {entry.run}` writes it again"
    decided = read_promotion(store, run)
    if decided is None or not any(made.name == f"{run}/{SAVED_MODEL}" and made.same for made in decided.exports):
        raise StoreError(f"{where} is incomplete: its promotion did not end; {remedy}")
    if problem := entry.other_weights(where, decided.weights_sha256):
        raise ArtifactError(f"{problem}; {remedy}")
    within, found = f"{run}/{SAVED_MODEL}/", read_completion(store, run, PROMOTE.name).artifacts
    return {made.name.removeprefix(within): made for made in found if made.name.startswith(within)}


def copy_saved_model(store: Store, entry: Crowned, folder: Path) -> None:
    """Copy a champion's SavedModel into a new folder, and verify each file's checksum.

    Raises:
        StoreError: a file cannot be read or written, or the promotion was interrupted.
        ArtifactError: the files are not the champion's.
    """
    for name, made in saved_model(store, entry).items():
        data = read_artifact(store, f"runs/{entry.run}", PROMOTE.name, made.name)
        target = folder / name
        with explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def lay_out(store: Store, recipe: str, folder: Path) -> Path:
    """Copy a recipe's champion to ``<folder>/<recipe>/<number>`` atomically, unless an equal copy exists there.

    Raises:
        StoreError: see :func:`copy_saved_model`, or the recipe has no champion.
        ArtifactError: see :func:`copy_saved_model`, or ``<number>`` exists without the champion's files.
    """
    entry = require_champion(store, recipe)
    place = folder / recipe / str(entry.number)
    if place.exists():
        _require_copy(store, entry, place)
        return place
    with appearing(place) as temporary:
        copy_saved_model(store, entry, temporary)
    return place


def _require_copy(store: Store, entry: Crowned, place: Path) -> None:
    for name, made in saved_model(store, entry).items():
        file = place / name
        found = digests.of_file(file) if file.is_file() else "no file"
        if found != made.sha256:
            raise ArtifactError(
                f"{file} has sha256 {found[:12]}, expected {made.sha256[:12]} of champion number {entry.number}, "
                f"{entry.run}; move {place} away, or give another FOLDER"
            )
