"""The steps of a conversion that a Beam worker runs: write a shard, or find that it is there.

What travels to a worker is a :class:`ShardTask`: places in raw files and one byte a label, a few hundred kilobytes for
a shard of 100 MB. What travels back is a :class:`~podline.data.shards.WrittenShard`, a few hundred bytes. Pixels go
from the raw file to the shard and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_jobs.runners import crossing_borders
from podline import digests
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import RecordLayout
from podline.data.shards import WrittenShard, write_shard
from podline.data.sources.source import Source, SourceSplit
from podline.errors import ArtifactError
from podline.storage import Store, explained, open_store

WRITTEN, REUSED = ".written", ".reused"  # a finished shard's mark is its file's name with one of these


@dataclass(frozen=True)
class ShardTask:
    """One shard to be written.

    Attributes:
        plan: which.
        images: its split's images, without labels.
        places: positions of its records among all images of the split, int64.
        labels: feature name → uint8, the labels of its records.
    """

    plan: ShardPlan
    images: SourceSplit
    places: npt.NDArray[np.int64]
    labels: dict[str, npt.NDArray[np.uint8]]

    def read(self, start: int, stop: int) -> Mapping[str, np.ndarray]:
        """The values of the shard's records start … stop-1."""
        labels = {name: values[start:stop].astype(np.int64) for name, values in self.labels.items()}
        return {**self.images.read(self.places[start:stop]), **labels}


@dataclass(frozen=True)
class Job:
    """What every shard of one conversion has in common.

    Attributes:
        root: the store.
        folder: the data set's folder in it.
        layout: of every record.
        classes: of the main label.
        done: an existing folder, of this run alone, in which each finished shard leaves a mark.
    """

    root: str
    folder: str
    layout: RecordLayout
    classes: int
    done: str


def shard_tasks(source: Source, plans: tuple[ShardPlan, ...], seed: int) -> Iterator[ShardTask]:
    """Each plan with the places and labels of its records."""
    splits = {split.name: split for split in source.splits}
    orders = {name: shard_order(seed, name, len(split)) for name, split in splits.items()}
    for plan in plans:
        split = splits[plan.split]
        chosen = orders[plan.split][plan.first : plan.first + plan.records]
        places = chosen if split.kept is None else split.kept[chosen]
        labels = {name: values[places] for name, values in split.labels.items()}
        yield ShardTask(plan, dataclasses.replace(split, labels={}, kept=None), places, labels)


@crossing_borders
def write_or_find(task: ShardTask, job: Job) -> WrittenShard:
    """Writes a shard, unless an earlier run left it whole.

    The shard is published first, then what is known about it: a shard without that word is written again.

    Raises:
        StoreError: the store cannot be written.
        SourceError: a raw file cannot be read.
    """
    store = open_store(job.root)
    name, record = f"{job.folder}/{task.plan.file}", f"{job.folder}/shards/{task.plan.file}.json"
    found = _known(store, record, name)
    if found is not None:
        _mark(job, task.plan, REUSED)
        return found
    with store.workspace("shard") as workspace:
        path = workspace / task.plan.file
        written = write_shard(path, task.plan, job.layout, job.classes, task.read)
        store.publish_file(path, name, replace=True)
    store.publish_json(record, written.model_dump(mode="json"), replace=True)
    _mark(job, task.plan, WRITTEN)
    return written


def finished(done: Path) -> dict[str, str]:
    """The shards that are finished, by the marks in :attr:`Job.done`: file → :data:`WRITTEN` or :data:`REUSED`."""
    return {mark.stem: mark.suffix for mark in done.iterdir()}


def _mark(job: Job, plan: ShardPlan, how: str) -> None:
    mark = Path(job.done) / f"{plan.file}{how}"
    with explained("write", mark):
        mark.touch()


def _known(store: Store, record: str, name: str) -> WrittenShard | None:
    """What an earlier run wrote, if it is there and its checksum is still right."""
    if not (store.exists(record) and store.exists(name)):
        return None
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return None  # its word is damaged: what is not known to be right is written again
    return known if digests.of_file(store.path(name)) == known.info.sha256 else None
