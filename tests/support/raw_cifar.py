"""Raw CIFAR-10 in the official binary layout, of any size, and a conversion of it without Beam."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from podline.data.planning import plan_shards
from podline.data.record_table import publish_records
from podline.data.records import layout_of
from podline.data.shards import write_shard
from podline.data.sources.opening import open_source
from podline.data.versions.draft import manifest_of, written_splits
from podline.data.versions.fingerprint import fingerprint
from podline.data.versions.growth import growth_of
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder
from podline.recipes.kind_table import facts_named
from podline.stages.specs import ConvertSpec
from podline.store.one_writer import LEASE
from podline.store.opening import open_store


def write_raw_cifar(folder: Path, *, train: int = 100, test: int = 20, seed: int = 0) -> Path:
    """Writes the six files, with images of noise; the training records go to the five batches in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (train + test, 3073), np.uint8)
    rows[:, 0] = random.integers(0, 10, train + test)
    for number in range(5):
        rows[number:train:5].tofile(folder / f"data_batch_{number + 1}.bin")
    rows[train:].tofile(folder / "test_batch.bin")
    return folder


def write_easy_cifar(folder: Path, *, train: int = 200, test: int = 60) -> Path:
    """Writes raw data whose classes a linear model tells soon: each has a bright band of its own."""
    for path in write_raw_cifar(folder, train=train, test=test).iterdir():
        rows = np.fromfile(path, np.uint8).reshape(-1, 3073)
        rows[:, 1:] //= 4
        for row in rows:
            band = 1 + 300 * int(row[0])
            row[band : band + 300] += 180
        rows.tofile(path)
    return folder


def convert_spec(root: Path, source: Path, /, **settings: object) -> ConvertSpec:
    """A conversion into shards of at most 20 records, so that even a tiny data set has several."""
    return ConvertSpec.model_validate(
        {"root": str(root), "dataset": "cifar10", "source": str(source), "shard_bytes": 65_000, **settings}
    )


def contents(spec: ConvertSpec) -> dict[str, bytes]:
    """All that a conversion publishes but its lease, and its completion record, which says how long it took."""
    store = open_store(spec.root)
    names = [name for name in store.list("datasets") if "/stages/" not in name and not name.endswith(LEASE)]
    return {name: store.read_bytes(name) for name in names}


def convert_plainly(spec: ConvertSpec) -> Manifest:
    """The same folder that a conversion makes but for the files that only TFDS and later conversions read."""
    store = open_store(spec.root)
    source = open_source(spec.dataset, spec.source, store.root / "cache").in_order(spec.seed)
    layout, folder = layout_of(source.features), dataset_folder(spec.dataset, fingerprint(spec, source.files))
    sizes = {split.name: len(split) for split in source.splits}
    plans = plan_shards(spec.dataset, sizes, layout.frame_length, shard_bytes=spec.shard_bytes, min_shards=1)
    written = []
    store.local(folder).mkdir(parents=True)
    filler, tables = source.shard_tables(plans, store.root)
    list(tables)
    census = partial(facts_named(source.kind).targets.census, classes=len(source.class_names))
    for plan in plans:
        path = store.local(folder) / plan.file
        fill = filler.filler(plan, layout, store.root / filler.table(plan))
        written.append(write_shard(path, plan, layout, census, fill))
    growth, parts = growth_of(store, source, folder.rpartition("/")[2], None, None), written_splits(plans, written)
    splits, sums = growth.infos(parts, {})
    manifest = manifest_of(spec, source, splits, publish_records(store, folder, growth.rows(parts), sums), "")
    store.publish_bytes(f"{folder}/{MANIFEST}", manifest.to_bytes())
    return manifest
