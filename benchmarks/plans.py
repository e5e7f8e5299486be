"""Plans of more records and files than this machine could store, in child processes. The files do not exist.

Each function returns seconds, and the bytes by which the process grew after its libraries were imported.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.conversion import peak_bytes
from podline.data.identity import IDENTITY_BYTES
from podline.data.images.deciding import decide
from podline.data.images.image_table import ImageTable, write_columns
from podline.data.images.items import listed
from podline.data.images.listing import Files, ListedFile, write_listing
from podline.data.images.parsing import LISTED, parsed
from podline.data.images.settings import ClassesSettings
from podline.data.order import TrainingOrder, shuffled
from podline.data.planning import plan_shards

_FOLDERS, _RECORD, _SHARD = 1000, 3126, 100_000_000
_STEPS, _TEST_SHARE = 100, 0.1


def order_ours(records: int, batch_size: int) -> dict[str, float]:
    """Plan shards, the order in a shard, and a training's order; compute the ids of batches at random steps."""
    chance, before, started = random.Random(0), peak_bytes(), time.perf_counter()
    plans = plan_shards("x", {"train": records}, _RECORD, shard_bytes=_SHARD, min_shards=1)
    plan = plans[chance.randrange(len(plans))]
    shuffled(0, "shards/train", records, np.arange(plan.first, plan.first + plan.records))
    order = TrainingOrder(records, batch_size, seed=0)
    return _batches(lambda step: order.batch(step)[1], 10 * order.steps_per_epoch, before, started)


def order_plain(records: int, batch_size: int) -> dict[str, float]:
    """Permute all ids of an epoch in memory; batches are slices of the permutation."""
    before, started = peak_bytes(), time.perf_counter()
    ids = np.random.default_rng(0).permutation(records)
    return _batches(lambda step: ids[step * batch_size :][:batch_size].copy(), records // batch_size, before, started)


def _batches(batch: Callable[[int], np.ndarray], steps: int, before: int, started: float) -> dict[str, float]:
    chance = random.Random(1)
    batch(chance.randrange(steps))
    planned = time.perf_counter()
    for _ in range(_STEPS):
        batch(chance.randrange(steps))
    ended = time.perf_counter()
    return {"plan": planned - started, "batch": (ended - planned) / _STEPS, "bytes": _grown(before)}


def files_ours(files: int, work: str) -> dict[str, float]:
    """Plan the ordered records of each split from a listing, with all steps of a conversion except the decoding.

    The files do not exist, so the images' identities are random.
    """
    folder, before, started = Path(work), peak_bytes(), time.perf_counter()
    found = (ListedFile(name, f"/source/{name}", 3000, 0) for name in _names(files))
    listing = write_listing(Path("/source"), found, folder / "asked.arrow")
    settings = ClassesSettings()
    splits = parsed("/source", Files("/source", listing, listing), settings, folder).splits
    first, chance = 0, np.random.default_rng(0)

    def columns() -> Iterator[dict[str, pa.Array]]:
        nonlocal first
        for batch in listed(folder / LISTED, ()).to_batches():
            rows = len(batch)
            identities = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(IDENTITY_BYTES), rows, [None, pa.py_buffer(chance.bytes(IDENTITY_BYTES * rows))]
            )
            names = {name: batch[name] for name in ("key", "label", "split", "group")}
            yield names | {"identity": identities, "pixels": identities, "row": pa.array(range(first, first + rows))}
            first += rows

    write_columns(folder / "images.arrow", columns())
    images = ImageTable(folder / "images.arrow")
    decide(images, frozenset(splits), _TEST_SHARE, settings.targets)
    planned = sum(len(images.ordered(images.kept(split))) for split in ("train", "test"))
    return _planned(planned, files, started, before)


def files_plain(files: int) -> dict[str, float]:
    """Shuffle a list of names and labels, and split off the test split."""
    before, started = peak_bytes(), time.perf_counter()
    names = sorted(_names(files))
    labels = [name.partition("/")[0] for name in names]
    classes = {label: code for code, label in enumerate(sorted(set(labels)))}
    examples = [(name, classes[label]) for name, label in zip(names, labels, strict=True)]
    random.Random(0).shuffle(examples)
    tested = int(_TEST_SHARE * files)
    test, train = examples[:tested], examples[tested:]
    return _planned(len(test) + len(train), files, started, before)


def _planned(planned: int, files: int, started: float, before: int) -> dict[str, float]:
    if planned != files:
        raise AssertionError(f"got {planned} planned files, expected {files}")
    return {"seconds": time.perf_counter() - started, "bytes": _grown(before)}


def _grown(before: int) -> int:
    return max(4096, peak_bytes() - before)  # at least a page, so that ratios are defined


def _names(files: int) -> Iterator[str]:
    each = files // _FOLDERS
    return (f"class{folder:04d}/{number:08d}.jpg" for folder in range(_FOLDERS) for number in range(each))
