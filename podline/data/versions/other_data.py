"""Refuses a source under a name that belongs to other data, as when two folders have the same name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from podline.base.errors import PodlineError, SourceError
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
    """Refuse a user's own data that continue no data set of the same name in the store.

    A source continues a data set with which it shares an image, or half of the classes or joints of the smaller side.
    So a folder may move, get new classes, or get new images of the same classes.

    Args:
        store: the store of the data set.
        dataset: name of the data set.
        source: the raw data.

    Raises:
        SourceError: the data set is there, and the source continues no version of it.
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
            f"data set {dataset} has the {what} {_few(then)}, and this source{but} has the {what} {_few(now)}: these "
            f"are other data; give them a name of their own (--name NAME, or the recipe {found.base}.NAME)"
        )


def _converted(store: Store, dataset: str) -> Iterator[Manifest]:
    """Yield the manifests of a data set, those of the latest versions first; skip deleted and damaged ones."""
    numbered = [version.fingerprint for version in reversed(versions(store, dataset))]
    others = (folder.rpartition("/")[2] for folder in store.folders(f"datasets/{dataset}"))
    for fingerprint in dict.fromkeys([*numbered, *others]):
        with contextlib.suppress(PodlineError):
            yield read_manifest(store, dataset_folder(dataset, fingerprint))


def _names(class_names: Sequence[str], facts: JsonObject) -> Sequence[str]:
    """Return the names of the classes, or else of the joints."""
    return class_names or (Skeleton.model_validate(facts[SKELETON]).annotated if SKELETON in facts else ())


def _share_an_image(store: Store, manifest: Manifest, source: Source) -> bool:
    with contextlib.suppress(PodlineError):  # the table is damaged, or an older Podline converted the data
        known = RecordTable.of(store, manifest).keys()
        return any(np.isin(found.keys, known).any() for found in source.identities().values())
    return False


def _few(names: Sequence[str]) -> str:
    return first_few([*map(shortened, names)], _NAMED)
