"""Copies a champion's SavedModel into the layout of TensorFlow Serving and KServe: ``<folder>/<recipe>/<number>/``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from podline.documents.champions import Crowned, champion, recipes
from podline.documents.completion import read_artifact, read_completion
from podline.documents.promotion import SAVED_MODEL, read_promotion
from podline.errors import ArtifactError, StoreError
from podline.stages.table import PROMOTE
from podline.store.contract import Store, explained


def require_champion(store: Store, recipe: str) -> Crowned:
    """Return a recipe's champion.

    Raises:
        StoreError: the recipe has no champion.
        ArtifactError: its history is damaged.
    """
    found = champion(store, recipe)
    if found is None:
        known = ", ".join(recipes(store)) or "none"
        raise StoreError(
            f"{store.uri}: {recipe} has no champion; make one with `podline models promote RUN`; there are: {known}"
        )
    return found


def copy_saved_model(store: Store, entry: Crowned, folder: Path) -> None:
    """Copy a champion's SavedModel into a new folder, and verify each file's checksum.

    Raises:
        StoreError: a file cannot be read or written, or the promotion has not ended.
        ArtifactError: the files are not the champion's.
    """
    run = f"runs/{entry.run}"
    remedy = f"`podline models promote {entry.run}` makes it again"
    decided = read_promotion(store, run)
    if decided is None or not any(made.name == f"{run}/{SAVED_MODEL}" and made.same for made in decided.exports):
        raise StoreError(f"{store.where(f'{run}/{SAVED_MODEL}')} is from an incomplete promotion; {remedy}")
    if decided.weights_sha256 != entry.weights_sha256:
        raise ArtifactError(
            f"{store.where(f'{run}/{SAVED_MODEL}')} has weights {decided.weights_sha256[:12]}… vs "
            f"{entry.weights_sha256[:12]}… of the champion number {entry.number}; {remedy}"
        )
    names = [made.name for made in read_completion(store, run, PROMOTE.name).artifacts]
    for name in (name for name in names if name.startswith(f"{run}/{SAVED_MODEL}/")):
        data = read_artifact(store, run, PROMOTE.name, name)
        target = folder / name.removeprefix(f"{run}/{SAVED_MODEL}/")
        with explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def lay_out(store: Store, recipe: str, folder: Path) -> Path:
    """Copy a recipe's champion to ``<folder>/<recipe>/<number>`` atomically; keep an existing one.

    Raises:
        StoreError: see :func:`copy_saved_model`, or the recipe has no champion.
        ArtifactError: see :func:`copy_saved_model`.
    """
    entry = require_champion(store, recipe)
    place = folder / recipe / str(entry.number)
    if place.exists():
        return place
    # The temporary name is not a number, so servers ignore it.
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        copy_saved_model(store, entry, temporary)
        with explained("write", place):
            temporary.rename(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place
