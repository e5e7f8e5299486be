"""The fingerprint of a data set, and how an earlier conversion is found by it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.source import RawData, open_raw
from podline.datasets.source_state import Memory
from podline.documents.manifest import LAYOUT_VERSION, SourceFile, dataset_folder
from podline.progress import Reporter
from podline.recipes import datasets
from podline.recipes.own_code import of_dataset
from podline.stages.completed import find_completed
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store import digests
from podline.store.contract import Store
from podline.store.opening import open_store

_DIGITS = 16


def source_cache(store: Store) -> Path:
    """Return the folder where unpacked archives are kept, from run to run."""
    return store.scratch / "sources"


def converter_settings(spec: ConvertSpec) -> dict[str, int | str]:
    """Return the settings of a conversion that its bytes depend on.

    Raises:
        SettingsError: there is no such data set.
    """
    dataset = datasets.find(spec.dataset)
    version, code = dataset.version, of_dataset(dataset)
    return {
        "seed": spec.seed,
        "shard_bytes": spec.shard_bytes,
        "min_shards": spec.min_shards,
        **({"version": version} if version else {}),
        **({"source_code": code} if code else {}),
        **spec.settings.converter(),
    }


def source_of(spec: ConvertSpec, store: Store) -> RawData:
    """Open the source that a conversion reads.

    Raises:
        SettingsError: there is no such data set.
        SourceError: the source is missing, damaged or another data set, or more is left out than the spec allows.
        StoreError: the cache folder cannot be written.
    """
    work = store.own_folder(source_cache(store).name)
    source = open_raw(datasets.find(spec.dataset), spec.source, spec.settings, work)
    refuse_left_out(spec.dataset, source.left_out, spec.allow_left_out)
    return source


def fingerprint(spec: ConvertSpec, files: Iterable[SourceFile]) -> str:
    """Hash all that a converted data set's bytes depend on: 16 hexadecimal digits.

    Args:
        spec: what the data set is and the settings count; its own name, where things are and how the work is divided
            do not.
        files: every raw file, with its checksum.
    """
    return digests.of_json(
        {
            "dataset": datasets.find(spec.dataset).base,
            "converter": converter_settings(spec),
            "layout_version": LAYOUT_VERSION,
            "files": [file.model_dump(mode="json") for file in files],
        }
    )[:_DIGITS]


def memory_of(spec: ConvertSpec, store: Store) -> Memory:
    """Return what this machine knows of a conversion's source.

    Raises:
        SourceError: the source does not exist.
        StoreError: the memory cannot be read.
    """
    depends = [
        datasets.find(spec.dataset).base,
        converter_settings(spec),
        spec.settings.code,
        LAYOUT_VERSION,
        spec.allow_left_out,
    ]
    return Memory(store, spec.source, spec.settings, depends)


def find_converted(spec: ConvertSpec, reporter: Reporter) -> ConvertResult | None:
    """Return an earlier conversion of the same files with the same settings, if all that it wrote is still whole.

    Raises:
        SourceError: the source does not exist.
    """
    store = open_store(spec.root)
    known = memory_of(spec, store).fingerprint
    return find_completed(store, dataset_folder(spec.dataset, known), spec, reporter) if known else None
