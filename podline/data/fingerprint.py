"""A data set's fingerprint: the same inputs are the same folder, so a second run finds what the first one made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from podline import digests
from podline.data.manifest import LAYOUT_VERSION, SourceFile, dataset_folder
from podline.data.sources.opening import open_source
from podline.progress import Reporter
from podline.stages import ConvertResult, ConvertSpec, find_completed
from podline.storage import Store, open_store

_DIGITS = 16


def source_cache(store: Store) -> Path:
    """Where unpacked archives are kept, from run to run."""
    return store.root / ".podline" / "sources"


def converter_settings(spec: ConvertSpec) -> dict[str, int | str]:
    """The settings of a conversion that its bytes depend on."""
    return {"seed": spec.seed, "shard_bytes": spec.shard_bytes, "min_shards": spec.min_shards}


def fingerprint(spec: ConvertSpec, files: Iterable[SourceFile]) -> str:
    """A hash of all that a converted data set's bytes depend on, 16 hexadecimal digits.

    Args:
        spec: the data set's name and the settings count; where things are and how the work is divided do not.
        files: every raw file, with its checksum.
    """
    return digests.of_json(
        {
            "dataset": spec.dataset,
            "converter": converter_settings(spec),
            "layout_version": LAYOUT_VERSION,
            "files": [file.model_dump(mode="json") for file in files],
        }
    )[:_DIGITS]


def find_converted(spec: ConvertSpec, reporter: Reporter) -> ConvertResult | None:
    """An earlier conversion of the same source with the same settings, if every file of it is still whole.

    Raises:
        SourceError: the source cannot be read, or is not what the spec says.
    """
    store = open_store(spec.root)
    source = open_source(spec.dataset, spec.source, source_cache(store))
    folder = dataset_folder(spec.dataset, fingerprint(spec, source.files))
    return find_completed(store, folder, spec, reporter)
