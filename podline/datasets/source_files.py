"""Looks up size and name of image files, which records do not contain, in the caches of this machine's conversions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.decoded import IMAGES
from podline.data.images.image_table import ImageTable
from podline.data.rawfiles import unpacked
from podline.data.reader import SplitReader
from podline.data.record_table import RECORDS, RecordTable, stored_digests
from podline.data.records import IMAGE
from podline.datasets.fingerprint import source_cache
from podline.documents.manifest import Manifest, stored_name
from podline.plain import plain
from podline.store.contract import Store


class SourceFacts(NamedTuple):
    """Facts about some image files.

    Attributes:
        pixels: width times height of each image, (n,); -1 if this machine did not convert it.
        names: name of each file in the source, as ``cat/1.png``; empty where ``pixels`` is -1.
    """

    pixels: npt.NDArray[np.int64]
    names: list[str]

    @property
    def complete(self) -> bool:
        """Return whether all facts are known."""
        return bool((self.pixels >= 0).all())

    @property
    def formats(self) -> list[str]:
        """Return the ending of each name, as ``.jpg``."""
        return [f".{name.rpartition('.')[2].lower()}".replace(".jpeg", ".jpg") for name in self.names]


def source_facts(store: Store, keys: npt.NDArray[np.bytes_]) -> SourceFacts:
    """Return the facts in this machine's caches; among several names, that of the newest conversion.

    Args:
        store: the store of the conversions.
        keys: the identities of the images.
    """
    pixels, names = np.full(len(keys), -1, np.int64), [""] * len(keys)
    tables = [folder / IMAGES for folder in unpacked(source_cache(store)) if (folder / IMAGES).exists()]
    for path in sorted(tables, key=lambda each: each.stat().st_mtime, reverse=True):
        if (pixels >= 0).all():
            break
        images = ImageTable(path)
        numbers = images.ordered(images.is_whole())
        known = images.column("identity")[numbers]
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = np.flatnonzero((known[at] == keys) & (pixels < 0)) if len(known) else np.empty(0, np.int64)
        mine = numbers[at[found]]
        pixels[found] = (images.column("width").astype(np.int64) * images.column("height"))[mine]
        for place, name in zip(found.tolist(), images.keys(mine), strict=True):
            names[place] = plain(name)
    return SourceFacts(pixels, names)


def file_names(store: Store, manifest: Manifest, split: str, records: Sequence[int]) -> list[str]:
    """Return the names, in the source, of some records' image files; empty for files unknown to this machine.

    Raises:
        ArtifactError: the table of records is damaged.
    """
    if manifest.records is None or not len(records):
        return [""] * len(records)
    return source_facts(store, _keys(store, manifest, split)[list(records)]).names


def record_identities(store: Store, manifest: Manifest, reader: SplitReader, records: Sequence[int]) -> list[str]:
    """Return the identities of some records' images; in a published data set, the sha256 of their pixels.

    Raises:
        ArtifactError: the table of records is damaged.
    """
    if manifest.records is None:
        images = reader.gather(np.array(records, np.int64), (IMAGE,))[IMAGE]
        return [hashlib.sha256(image.tobytes()).hexdigest() for image in images]
    keys = _keys(store, manifest, reader.info.name)
    return [keys[record : record + 1].tobytes().hex() for record in records]


def _keys(store: Store, manifest: Manifest, split: str) -> npt.NDArray[np.bytes_]:
    table = RecordTable(store.local(stored_name(manifest.folder, RECORDS)))
    return stored_digests(table.of_split(split, "key")["key"])
