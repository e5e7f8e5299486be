"""Compute the fingerprint of a data set, and find an earlier conversion of the same source.

A conversion stores the fingerprint of its data set under a hash of its settings and of the names, sizes and times of
the source's files. So neither the flow nor the Prefect worker parses a raw file, and a night without new data reads
no file's content.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NewType

from podline.base.errors import PermanentError, SourceError
from podline.base.progress import Reporter
from podline.data.images.listing import folders_around, listing
from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.remote import is_remote, local_path, objects_of
from podline.data.sources.source import Source, open_raw
from podline.data.versions.other_data import refuse_other_data
from podline.documents.corrections import corrections, forgotten
from podline.documents.manifest import LAYOUT_VERSION, SourceFile, dataset_folder, read_manifest
from podline.documents.versions import Version, compacted, versions
from podline.recipes import datasets
from podline.recipes.datasets import ConverterSettings
from podline.recipes.kind_table import code_of_targets
from podline.recipes.own_code import of_dataset
from podline.stages import completed
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store import digests
from podline.store.contract import Store
from podline.store.opening import open_store

_DIGITS = 16
_FINGERPRINT = re.compile(f"[0-9a-f]{{{_DIGITS}}}", re.ASCII)
CONVERSIONS = "conversions"
"""The folder in a store with the fingerprint of each converted source."""


EffectiveSpec = NewType("EffectiveSpec", ConvertSpec)
"""A spec returned by :func:`effective`; functions that open or look up a source require this type."""


@dataclass(frozen=True)
class Memory:
    """The stored fingerprint of one source; ``key`` is a hash of the settings and of the files' names, sizes, times."""

    store: Store
    key: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the converted data set; empty if none is stored or the file is damaged.

        Raises:
            StoreError: the store cannot be read.
        """
        text = self.store.read_bytes(self._name).decode(errors="replace") if self.store.exists(self._name) else ""
        return text if _FINGERPRINT.fullmatch(text) else ""

    def remember(self, fingerprint: str) -> None:
        """Store the fingerprint of the source's data set.

        Raises:
            StoreError: the file cannot be written.
        """
        self.store.publish_bytes(self._name, fingerprint.encode(), replace=True)

    def forget(self) -> None:
        """Delete the stored fingerprint, so that the next conversion opens the source.

        Raises:
            StoreError: the file cannot be deleted.
        """
        self.store.delete(self._name)

    @property
    def _name(self) -> str:
        return f"{CONVERSIONS}/{self.key}"


def source_cache(store: Store) -> Path:
    """Return the folder that caches unpacked archives and decoded images between runs."""
    return store.scratch / "sources"


def converter_settings(spec: ConvertSpec) -> dict[str, int | str]:
    """Return the settings of a conversion that change the bytes of its shards.

    Raises:
        SettingsError: the data set does not exist.
    """
    dataset = datasets.find(spec.dataset)
    version, code, of_kind = dataset.version, of_dataset(dataset), code_of_targets(dataset.kind)
    return {
        "seed": spec.seed,
        "shard_bytes": spec.shard_bytes,
        "min_shards": spec.min_shards,
        **({"version": version} if version else {}),
        **({"source_code": code} if code else {}),
        **({"kind_code": of_kind} if of_kind else {}),
        **spec.settings.converter(),
    }


def record_form(settings: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the settings without corrections and forgotten images, which change the records but not their form."""
    return {name: value for name, value in settings.items() if name not in ("corrections", "forgotten")}


def effective(spec: ConvertSpec, store: Store) -> EffectiveSpec:
    """Return the spec with its data set's label corrections and forgotten images, if its settings support them.

    Raises:
        ArtifactError: a review, or the document of a forgotten image, is damaged.
    """
    if "corrections" not in type(spec.settings).model_fields:
        return EffectiveSpec(spec)
    reviewed = corrections(store, spec.dataset)
    labels = {image: each.label for image, each in sorted(reviewed.items()) if each.decision != "keep"}
    settings = spec.settings.model_copy(update={"corrections": labels, "forgotten": forgotten(store, spec.dataset)})
    return EffectiveSpec(spec.model_copy(update={"settings": settings}))


def source_of(spec: EffectiveSpec, store: Store) -> Source:
    """Open the source of a conversion, and refuse it if it cannot be converted.

    Raises:
        SettingsError: the data set does not exist.
        SourceError: the source is missing, damaged or of another data set; or see :func:`require_convertible`.
        StoreError: the cache folder cannot be written.
    """
    source = opened(spec, store)
    require_convertible(spec, store, source)
    return source


def opened(spec: EffectiveSpec, store: Store) -> Source:
    """Open the source of a conversion without the checks of :func:`require_convertible`."""
    work = store.own_folder(source_cache(store).name)
    return open_raw(datasets.find(spec.dataset), spec.source, spec.settings, work)


def require_convertible(spec: EffectiveSpec, store: Store, source: Source) -> None:
    """Raise an error if an opened source must not be converted.

    Raises:
        SourceError: more records are left out than the spec allows, the splits share too many near-duplicates, or the
            source belongs to another data set.
    """
    refuse_left_out(spec.dataset, source.left_out, spec.allow_left_out)
    source.notes()
    refuse_other_data(store, spec.dataset, source)


def fingerprint(spec: ConvertSpec, files: Iterable[SourceFile]) -> str:
    """Return the fingerprint of a data set: 16 hexadecimal digits of a hash of all that its bytes depend on.

    The hash covers the raw files' names and checksums, the settings, and the data set's base name. It excludes the name
    that a user adds to the base, paths, and how the work is divided.
    """
    return digests.of_json(
        {
            "dataset": datasets.find(spec.dataset).base,
            "converter": converter_settings(spec),
            "layout_version": LAYOUT_VERSION,
            "files": [file.model_dump(mode="json") for file in files],
        }
    )[:_DIGITS]


def memory_of(spec: EffectiveSpec, store: Store) -> Memory:
    """Return the stored fingerprint of a conversion's source, for the current state of its files.

    Raises:
        SourceError: the source does not exist, or cannot be listed.
    """
    depends = [
        datasets.find(spec.dataset).base,
        converter_settings(spec),
        spec.settings.model_dump(mode="json"),
        spec.settings.code,
        LAYOUT_VERSION,
        spec.allow_left_out,
    ]
    return Memory(store, digests.of_json([_state(spec.source, spec.settings), depends]))


def find_converted(spec: ConvertSpec, reporter: Reporter) -> ConvertResult | None:
    """Return an earlier conversion of the same files with the same settings, if all its files are still there.

    Returns None if another version is newer: converting an earlier state again makes a new version.

    Raises:
        SourceError: the source does not exist.
    """
    store = open_store(spec.root)
    wanted = effective(spec, store)
    if not (known := memory_of(wanted, store).fingerprint):
        return None
    found = versions(store, spec.dataset)
    if _superseded(store, wanted, found, known):
        return None
    return completed.find(wanted, reporter, dataset_folder(spec.dataset, compacted(found, known)))


def _superseded(store: Store, spec: ConvertSpec, found: Sequence[Version], known: str) -> bool:
    """Return whether a version with these settings (:func:`record_form`) is newer than the content ``known``."""
    form = record_form(converter_settings(spec))
    for version in reversed(found):
        if version.content == known:
            return False
        with contextlib.suppress(PermanentError):  # the version was deleted
            manifest = read_manifest(store, dataset_folder(spec.dataset, version.fingerprint))
            if record_form(manifest.converter) == form:
                return True
    return False


def _state(source: str, settings: ConverterSettings) -> object:
    """Return a value that depends on names, sizes and times (or generations) of all files that the source may read."""
    if is_remote(source):
        objects = objects_of(source)[1]
        return [source, digests.of_list([found.name, found.bytes, found.version] for found in objects)]
    place = local_path(source)
    if not place.exists():
        raise SourceError(f"{source} does not exist; give an existing folder or file as source (--source)")
    files = chain(listing(place), *map(listing, filter(Path.is_dir, folders_around(place, settings))))
    return [str(place), digests.of_list([file.name, file.bytes, file.changed] for file in files)]
