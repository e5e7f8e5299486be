"""Refuse a source whose name already belongs to a different data set, such as another folder of the same name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from podline.base.errors import PermanentError, SourceError
from podline.base.frozen import JsonObject
from podline.base.plurals import first_few
from podline.data.record_table import RecordTable
from podline.data.shown import shortened
from podline.data.sources.source import Source
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.documents.skeleton import SKELETON, Skeleton
from podline.documents.versions import versions
from podline.recipes import datasets
from podline.store.contract import Store

_NAMED = 3


def refuse_other_data(store: Store, dataset: str, source: Source) -> None:
    """Refuse a user's own data if the store has a different data set of the same name.

    A source belongs to the existing data set if at least half of the class or joint names in the shorter list are in
    both, or, with classes, if they share an image. So a folder may move, get new classes, or get new images of the same
    classes.

    Raises:
        SourceError: the store has a data set of this name, and the source shares too little with every version of it.
    """
    found, now = datasets.find(dataset), _names(source.class_names, source.facts)
    if not found.several or not now:
        return
    then = ()
    for manifest in _converted(store, dataset):
        names = _names(manifest.class_names, manifest.facts)
        if 2 * len({*names} & {*now}) >= min(len(names), len(now)):
            return
        if source.class_names and _share_an_image(store, manifest, source):
            return
        then = then or names
    if then:
        what, but = ("classes", ", without any of its images,") if source.class_names else ("joints", "")
        raise SourceError(
            f"data set {dataset} has the {what} {_few(then)}, but this source{but} has the {what} {_few(now)}; it is "
            f"another data set, so name it differently (--name NAME, or the recipe {found.base}.NAME)"
        )


def _converted(store: Store, dataset: str) -> Iterator[Manifest]:
    """Yield the readable manifests of a data set, latest versions first."""
    numbered = [version.fingerprint for version in reversed(versions(store, dataset))]
    others = (folder.rpartition("/")[2] for folder in store.folders(f"datasets/{dataset}"))
    for fingerprint in dict.fromkeys([*numbered, *others]):
        with contextlib.suppress(PermanentError):
            yield read_manifest(store, dataset_folder(dataset, fingerprint))


def _names(class_names: Sequence[str], facts: JsonObject) -> Sequence[str]:
    """Return the class names, or the joint names if there are no classes."""
    return class_names or (Skeleton.model_validate(facts[SKELETON]).annotated if SKELETON in facts else ())


def _share_an_image(store: Store, manifest: Manifest, source: Source) -> bool:
    with contextlib.suppress(PermanentError):  # the table is damaged, or an older Podline converted the data
        known = RecordTable.of(store, manifest).keys()
        return any(np.isin(found.keys, known).any() for found in source.identities().values())
    return False


def _few(names: Sequence[str]) -> str:
    return first_few([*map(shortened, names)], _NAMED)
