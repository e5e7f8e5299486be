"""Refuses a source whose data set's name belongs to other data, as that of another folder with the same name."""

from __future__ import annotations

import numpy as np

from podline.data.images.opening import ImagesSource
from podline.data.record_table import RECORDS, RecordTable
from podline.data.shown import shortened
from podline.data.sources.source import RawData
from podline.documents.manifest import Manifest, dataset_folder, read_manifest, stored_name
from podline.documents.versions import versions
from podline.errors import PodlineError, SourceError
from podline.recipes import datasets
from podline.store.contract import Store

_NAMED = 3


def refuse_other_data(store: Store, dataset: str, source: RawData) -> None:
    """Refuse images that continue no version of their data set.

    A source continues a version with which it shares an image file or, of the source's or the version's classes, half.
    So a folder may move, get new classes, or get new images of the same classes.

    Args:
        store: the store of the data set.
        dataset: name of the data set.
        source: the images; sources of other kinds have no versions.

    Raises:
        SourceError: the data set has versions, and the source continues none of them.
    """
    if not isinstance(source, ImagesSource) or not source.class_names:
        return
    newest = None
    for version in reversed(versions(store, dataset)):
        try:
            manifest = read_manifest(store, dataset_folder(dataset, version.fingerprint))
            if _share_classes(manifest, source) or _share_an_image(store, manifest, source):
                return
        except PodlineError:  # the version was deleted, or is damaged
            continue
        newest = newest or (version.number, manifest)
    if newest:
        number, manifest = newest
        base = datasets.find(dataset).base
        raise SourceError(
            f"data set {dataset}: its version {number} has the classes {_few(manifest.class_names)}, and none of its "
            f"images is in this source with the classes {_few(source.class_names)}: these are other data; give them a "
            f"name of their own (--name NAME, or the recipe {base}.NAME)"
        )


def _share_classes(manifest: Manifest, source: ImagesSource) -> bool:
    then, now = set(manifest.class_names), set(source.class_names)
    return 2 * len(then & now) >= min(len(then), len(now))


def _share_an_image(store: Store, manifest: Manifest, source: ImagesSource) -> bool:
    if manifest.records is None:
        return False
    known = np.concatenate([*RecordTable(store.local(stored_name(manifest.folder, RECORDS))).keys()])
    return any(np.isin(part.keys, known).any() for parts in source.identities().values() for part in parts)


def _few(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(shortened, names[:_NAMED])) + more
