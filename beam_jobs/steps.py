"""The Beam steps: decode a batch of images, and write a shard unless it is in the store.

A worker receives only the numbers of a few batches or shards. It reads all other data from the store, and writes its
results there.
"""

from __future__ import annotations

import functools
import json
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from podline import __version__
from podline.beam_jobs.runners import crossing_borders
from podline.data.decoded_rows import FILES, HASHES, PIXELS, batch_name, rows_of
from podline.data.images.hashing import hashes, shown_box
from podline.data.places import Place, StoredFile
from podline.data.planning import ShardPlan, ShardPlans
from podline.data.records import EncodedLayout, RecordLayout
from podline.data.shards import ShardFiller, WrittenShard, write_shard
from podline.data.sources.decoding import Decoder, Look, Pictures, Request
from podline.documents.manifest import shard_record
from podline.engines import LOCAL
from podline.errors import ArtifactError, EngineError, PodlineError
from podline.kinds.table import kind_named
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.store.prefetch import in_order

WORKERS = "workers"
REQUESTS, LOOKS = "requests", "looks"
"""For a batch: the position of each image in its files, and the facts about each image."""

_CLOCK_SECONDS = 120.0  # Google refuses signatures whose time is wrong by a few minutes


@dataclass(frozen=True)
class Home:
    """The raw data and settings of a conversion's job.

    Attributes:
        root: the location of the store.
        folder: the job's folder in the store.
        engine: the engine that runs the job.
        host: the machine that started the job.
        release: the version of Podline on that machine.
    """

    root: str
    folder: str
    engine: str = LOCAL
    host: str = field(default_factory=socket.gethostname)
    release: str = __version__


@dataclass(frozen=True)
class Decode:
    """The facts that all image batches of a job share.

    Attributes:
        home: the raw data and settings of the job.
        folder: the batches' folder in the store.
        becoming: the form to which images are converted.
        factor: the factor for all limits, from the setting ``parse_limits``.
    """

    home: Home
    folder: str
    becoming: Pictures
    factor: float


@dataclass(frozen=True)
class Job:
    """The facts that all shards of one conversion share.

    Attributes:
        home: the raw data and settings of the job; its folder has the plan's tables.
        folder: the data set's folder in the store.
        layout: the assignment of records to shards.
        kind: the kind of task.
        classes: the number of classes, for kinds that need it.
        plans: the shards.
        filler: creates the records.
    """

    home: Home
    folder: str
    layout: RecordLayout | EncodedLayout
    kind: str
    classes: int
    plans: ShardPlans
    filler: ShardFiller


def tables_of(home: Home, folder: str) -> str:
    """Return the store's folder for the plan tables of a data set folder."""
    return f"{home.folder}/{folder.rpartition('/')[2]}"


Task = TypeVar("Task", Decode, Job)


def _of_each(step: Callable[[int, Task], None]) -> Callable[[tuple[int, int], Task], None]:
    """Return a Beam step that calls ``step`` for each number of a range, after checks of the worker."""

    @functools.wraps(step)
    def steps(numbers: tuple[int, int], task: Task) -> None:
        try:
            if task.home.engine != LOCAL:
                _begin(task.home.root, task.home.folder, task.home.release)
            for number in range(*numbers):
                step(number, task)
        except PodlineError as error:
            if socket.gethostname() == task.home.host:
                raise
            raise type(error)(f"on worker {socket.gethostname()}: {error}") from error

    return crossing_borders(steps)


@_of_each
def decode_or_find(number: int, task: Decode) -> None:
    """Decode a batch of images, and publish the outcomes last.

    Raises:
        EngineError: this worker has a different release of Podline, or its clock is wrong.
        StoreError: the store cannot be read or written.
    """
    store, name = open_store(task.home.root), functools.partial(batch_name, task.folder, number)
    if store.exists(name(LOOKS)):
        return
    with store.workspace("decode") as folder, Decoder(task.becoming) as decoder:
        files, pixels = folder / FILES, folder / PIXELS
        pixels.touch()
        said = json.loads(store.read_bytes(name(REQUESTS)))
        if said["objects"]:
            objects = (StoredFile(*one) for one in said["objects"])
            files.write_bytes(b"".join(in_order(StoredFile.read, objects, store.parallel)))
        else:
            files.write_bytes(store.read_bytes(name(FILES)))
        places = [
            (place if isinstance(place, str) else Place(str(files), *place), size) for place, size in said["asked"]
        ]
        asked = [(str(pixels), row, Request(*request)) for row, request in enumerate(places)]
        looks = list(decoder.looks(asked, task.factor, processes=1))
        store.publish_bytes(name(HASHES), _hashes(looks, task.becoming, folder), replace=True, flush=False)
        store.publish_file(pixels, name(PIXELS), replace=True, flush=False)
    store.publish_bytes(name(LOOKS), json.dumps(looks).encode(), replace=True, flush=False)


def _hashes(looks: Sequence[Look], becoming: Pictures, folder: Path) -> bytes:
    """Return the pictures' perceptual hashes, for the machine that started the job: it reads no pixels."""
    rows = rows_of(folder, becoming.shape)

    def read(wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        return rows.read(wanted, math.prod(becoming.shape)).reshape(-1, *becoming.shape)

    boxes = np.array([shown_box(look.height, look.width, becoming.shape, becoming.fit) for look in looks], np.int64)
    return hashes(read, boxes).tobytes()


@_of_each
def write_or_find(number: int, job: Job) -> None:
    """Write a shard and its record, unless they exist.

    A shard is published before its record, so a shard without a record is written again.

    Raises:
        EngineError: this worker has a different release of Podline, or its clock is wrong.
        StoreError: the store is not writable.
        SourceError: a raw file cannot be read.
    """
    _write_or_find(job.plans[number], job)


@functools.lru_cache(maxsize=1)
def _begin(root: str, folder: str, release: str) -> None:
    """Register this process in the job's folder, once, and compare its clock with the store's clock.

    A different release may write different bytes, and credentials are refused if the clock is wrong.
    """
    if release != __version__:
        raise EngineError(f"Podline {__version__} here, but {release} where the job was started; install the same")
    store, name = open_store(root), f"{folder}/{WORKERS}/{socket.gethostname()}~{os.getpid()}"
    store.publish_bytes(name, b"", replace=True)
    found = store.find(name)
    off = time.time() - found.published if found else 0.0
    if abs(off) > _CLOCK_SECONDS:
        raise EngineError(f"the clock here is {off:+,.0f} s off the store's; set it, or use NTP")


def _write_or_find(plan: ShardPlan, job: Job) -> None:
    store = open_store(job.home.root)
    record = f"{job.folder}/{shard_record(plan.file)}"
    if _is_there(store, job.folder, record):
        return
    fill = job.filler.filler(
        plan, job.layout.decoded, store.local(f"{tables_of(job.home, job.folder)}/{job.filler.table(plan)}")
    )
    with store.workspace("shard") as workspace:
        census = functools.partial(kind_named(job.kind).targets().census, classes=job.classes)
        written = write_shard(workspace / plan.file, plan, job.layout, census, fill)
        # All shards are flushed together before the conversion is complete; flushing each one took 20 % of the time.
        for file in written.info.files:
            store.publish_file(workspace / file.file, f"{job.folder}/{file.file}", replace=True, flush=False)
    store.publish_json(record, written.model_dump(mode="json"), replace=True, flush=False)


def _is_there(store: Store, folder: str, record: str) -> bool:
    """Return whether an earlier run wrote a shard, and its checksums still match."""
    if not store.exists(record):
        return False
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return False  # the record is damaged: write the shard again
    names = [(f"{folder}/{file.file}", file.sha256) for file in known.info.files]
    return all(store.exists(name) and store.sha256(name) == sha256 for name, sha256 in names)
