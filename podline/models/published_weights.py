"""Fetches published weights of networks once, and keeps each file in the store under its checksum."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
from pathlib import Path

import keras

from podline.base.errors import ArtifactError, SettingsError, one_line
from podline.models.applications import APPLICATIONS, weights_of
from podline.models.efficientnet_lite import from_pytorch
from podline.models.weights_files import Layers, read_weights
from podline.recipes.published_weights import PUBLISHED, Pretrained, PublishedWeights
from podline.store.contract import Store, explained

_SHA256 = 64  # hexadecimal digits of a sha256


def published_layers(store: Store, network: Pretrained, checksum: str) -> Layers:
    """Return the published weights of a network, from the store, or else from their source.

    Args:
        store: the store that keeps the weights.
        network: the network and the setting that asks for its weights.
        checksum: the checksum of the weights in the run's recipe.

    Raises:
        SettingsError: the weights cannot be fetched, do not have this checksum, or are not published for the network.
        ArtifactError: the file in the store has changed.
    """
    kind, published = network.kind, PUBLISHED.get(network.kind)
    if published is None or published.checksum != checksum:
        known = f"{published.checksum[:12]}… of this Podline" if published else f"none for model {kind}"
        raise SettingsError(
            f"model.weights: got checksum {checksum[:12]}… in the recipe, expected {known}; train a new run"
        )
    with store.workspace("weights") as folder:
        file = folder / published.file  # a cached object of a bucket has no suffix
        kept = _kept(store, network, published)
        with explained("copy", kept):
            shutil.copyfile(kept, file)
        if kind in APPLICATIONS:
            return weights_of(APPLICATIONS[kind], file)
        return from_pytorch(read_weights(file, (file.suffix,)))


def _kept(store: Store, network: Pretrained, published: PublishedWeights) -> Path:
    """Return a local file with the weights; if the store lacks the file, fetch and publish it."""
    name = published.name
    if not store.exists(name):
        with store.workspace("weights") as folder:
            copy = folder / published.file
            downloaded = published.is_downloaded
            source = _downloaded(published, store.where(name)) if downloaded else _of_package(network, published)
            with explained("write", store.where(name)):
                shutil.copyfile(source, copy)
            if (found := _checksum(copy, published)) != published.checksum:
                raise SettingsError(
                    f"model.weights: {source} has checksum {found[:12]}… vs {published.checksum[:12]}… of the "
                    "published file; delete the file, and run the command again to fetch it"
                )
            store.publish_file(copy, name)
    file = store.local(name)
    if _checksum(file, published) != published.checksum:
        raise ArtifactError(
            f"{store.where(name)} has another checksum than its folder's name; delete the file to fetch it again"
        )
    return file


def _checksum(file: Path, published: PublishedWeights) -> str:
    with file.open("rb") as stream:
        algorithm = "sha256" if len(published.checksum) == _SHA256 else "md5"
        return hashlib.file_digest(stream, algorithm).hexdigest()


def _of_package(network: Pretrained, published: PublishedWeights) -> Path:
    """Return the file in an installed package, without importing the package."""
    published.require_package(network.setting, network.instead)
    for part in importlib.metadata.files(published.source) or ():
        if part.name == published.file:
            return Path(str(part.locate()))
    raise SettingsError(
        f"model.weights: package {published.source} has no {published.file}, expected version 0.1.0; install it again"
    )


def _downloaded(published: PublishedWeights, where: str) -> Path:
    """Return the file in Keras's cache, or download it there; a user may also put it at ``where``."""
    address, checksum = published.source, published.checksum
    try:
        return Path(keras.utils.get_file(published.file, address, cache_subdir="models", file_hash=checksum))
    except Exception as error:  # Keras raises Exception itself
        raise SettingsError(
            f"model.weights: Keras cannot download {published.file} ({one_line(error)}); put the file at {where}, or "
            "give model.weights=none"
        ) from error
