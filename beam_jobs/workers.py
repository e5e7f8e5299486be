"""The steps of the Beam job: decode batches of images, and write shards, unless the results are in the store.

A worker receives only the numbers of batches or shards. It reads all other data from the store, and writes its results
there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import time
from abc import ABC, abstractmethod

import apache_beam as beam

from podline import __version__
from podline.base.errors import ArtifactError, EngineError, PodlineError
from podline.beam_jobs.failures import encoded
from podline.beam_jobs.jobs import WORKERS, JobContext
from podline.data.decoded_rows import FILES, PIXELS, batch_name
from podline.data.places import Place, StoredFile
from podline.data.planning import ShardPlans
from podline.data.records import stored_layout
from podline.data.shards import RowsByPlace, WrittenShard, publish_shard
from podline.data.sources.decoding import Decoder, DecodeRequest, FittedPictures
from podline.data.sources.source import Source
from podline.documents.manifest import shard_record
from podline.recipes.kind_table import facts_named
from podline.settings.engines import LOCAL
from podline.store.contract import Store, explained
from podline.store.one_writer import help_writer
from podline.store.opening import open_store
from podline.store.prefetch import in_order

REQUESTS, LOOKS = "requests", "looks"
"""File extensions of a batch in the store: where each image's bytes are; the facts about each decoded image."""

_CLOCK_SECONDS = 120.0  # Google refuses signatures whose time stamps are a few minutes off


def tables_of(context: JobContext, folder: str) -> str:
    """Return the folder in the store, below the job's folder, with the plan's tables for a data set's folder."""
    return f"{context.folder}/{folder.rpartition('/')[2]}"


class _NumberedStep(beam.DoFn, ABC):
    """Processes the numbers of batches or shards, after checking the worker's release and clock."""

    def __init__(self, context: JobContext) -> None:
        super().__init__()
        self.context = context

    def process(self, numbers: tuple[int, int]) -> None:
        """Process a range of numbers: from ``numbers[0]`` up to, but not including, ``numbers[1]``."""
        try:
            if self.context.engine != LOCAL:
                _begin(self.context.root, self.context.folder, self.context.release)
            for number in range(*numbers):
                self.make_or_find(number)
        except PodlineError as error:
            here = socket.gethostname()
            raise encoded(error if here == self.context.host else error.known(f"on worker {here}: {error}")) from error

    @abstractmethod
    def make_or_find(self, number: int) -> None:
        """Process one batch or shard, unless its result is in the store.

        Raises:
            StoreError: the store cannot be read or written.
        """


class DecodeBatches(_NumberedStep):
    """Decodes batches of images; publishes the pixels of each batch, then the facts about its images.

    Args:
        context: see :class:`JobContext`.
        folder: the batches' folder in the store.
        form: size and format to which images are converted.
        factor: the factor for all parsing limits, from the setting ``parse_limits``.
    """

    def __init__(self, context: JobContext, folder: str, form: FittedPictures, factor: float) -> None:
        super().__init__(context)
        self.folder, self.form, self.factor = folder, form, factor
        self._decoder: Decoder | None = None

    def setup(self) -> None:
        """Create the decoder, whose processes serve all batches of this worker."""
        self._decoder = Decoder(self.form)

    def teardown(self) -> None:
        """End the decoder's processes."""
        if self._decoder:
            self._decoder.close()

    def make_or_find(self, number: int) -> None:
        """Decode a batch unless its facts exist; see :meth:`_NumberedStep.make_or_find`."""
        store, name = open_store(self.context.root), functools.partial(batch_name, self.folder, number)
        if store.exists(name(LOOKS)):
            return
        with store.workspace("decode") as folder, contextlib.ExitStack() as stack:
            decoder = self._decoder or stack.enter_context(Decoder(self.form))
            files, pixels = folder / FILES, folder / PIXELS
            said = json.loads(store.read_bytes(name(REQUESTS)))
            objects = [StoredFile(*one) for one in said["objects"]]
            if objects:
                content = b"".join(in_order(StoredFile.read, objects, store.parallel))
            else:
                content = store.read_bytes(name(FILES))
            with explained("write", folder):
                pixels.touch()
                files.write_bytes(content)
            places = [
                (place if isinstance(place, str) else Place(str(files), *place), size) for place, size in said["asked"]
            ]
            asked = [(str(pixels), row, DecodeRequest(*request)) for row, request in enumerate(places)]
            looks = list(decoder.looks(asked, self.factor, processes=1))
            store.publish_file(pixels, name(PIXELS), replace=True, flush=False)
        store.publish_bytes(name(LOOKS), json.dumps(looks).encode(), replace=True, flush=False)


class WriteShards(_NumberedStep):
    """Writes shards, each followed by its record; a shard without a record is written again.

    Args:
        context: see :class:`JobContext`; its folder has the plan's tables.
        folder: the data set's folder in the store.
        source: the source of the records; only its layout, kind and number of classes are sent to workers.
        plans: the planned shards.
        filler: fills records from the plan's tables.
        writer: identifies the conversion, which holds the lease (the exclusive right to write) of the folder.
    """

    def __init__(
        self, context: JobContext, folder: str, source: Source, plans: ShardPlans, filler: RowsByPlace, writer: str
    ) -> None:
        super().__init__(context)
        self.folder, self.plans, self.filler, self.writer = folder, plans, filler, writer
        self.layout, self.kind, self.classes = stored_layout(source.features), source.kind, len(source.class_names)

    def make_or_find(self, number: int) -> None:
        """Write a shard unless its files and record are intact; see :meth:`_NumberedStep.make_or_find`.

        Raises:
            SourceError: a raw file cannot be read.
        """
        store, plan = open_store(self.context.root), self.plans[number]
        record = f"{self.folder}/{shard_record(plan.file)}"
        if _is_there(store, self.folder, record):
            return
        help_writer(store, self.folder, self.writer)
        table = store.local(f"{tables_of(self.context, self.folder)}/{self.filler.table(plan)}")
        fill = self.filler.filler(plan, self.layout.decoded, table)
        census = functools.partial(facts_named(self.kind).targets.census, classes=self.classes)
        publish_shard(store, self.folder, plan, self.layout, census, fill)


@functools.lru_cache(maxsize=1)
def _begin(root: str, folder: str, release: str) -> None:
    """Register this process in the job's folder, once; refuse another release of Podline, or a wrong clock.

    Another release may write other bytes, and a wrong clock makes Google refuse the credentials.
    """
    if release != __version__:
        raise EngineError(
            f"this worker has Podline {__version__}, but the job was started by {release}; install {release} here"
        )
    store, name = open_store(root), f"{folder}/{WORKERS}/{socket.gethostname()}~{os.getpid()}"
    store.publish_bytes(name, b"", replace=True)
    found = store.find(name)
    off = time.time() - found.published if found else 0.0
    if abs(off) > _CLOCK_SECONDS:
        raise EngineError(f"this worker's clock is {off:+,.0f} s off the store's clock; set it, or use NTP")


def _is_there(store: Store, folder: str, record: str) -> bool:
    """Return whether a shard's record exists, and its files have the recorded checksums."""
    if not store.exists(record):
        return False
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return False  # the record is damaged: write the shard again
    names = [(f"{folder}/{file.file}", file.sha256) for file in known.info.files]
    return all(store.exists(name) and store.sha256(name) == sha256 for name, sha256 in names)
