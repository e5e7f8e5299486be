"""Let an engine's workers decode a source's images.

A batch of up to 500 images, with their files, is published in the job's folder; of images in a bucket only the
addresses are. A worker decodes the batch and publishes pixels and facts there. The driver reads the facts about each
image, but no pixels.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import apache_beam as beam
import numpy as np

from podline.beam_jobs.jobs import JobContext
from podline.beam_jobs.workers import LOOKS, REQUESTS, DecodeBatches
from podline.data.decoded_rows import FILES, PIXELS, DecodedRows, StoredRows, batch_name, row_bytes, with_checksums
from podline.data.places import StoredFile
from podline.data.rawfiles import reading
from podline.data.sources.decoding import DecodeRequest, FittedPictures, Look, content
from podline.data.sources.remote import stored_at
from podline.settings import machine as settings
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_BATCH_BYTES, _BATCH_IMAGES = 4_000_000, 500  # small enough to keep the workers of a small source busy

_File = bytes | str | StoredFile
"""An image's file as bytes, as a version in a bucket, or (str) the reason why it cannot be read."""
_Batch = list[tuple[DecodeRequest, _File]]


class EngineDecoding:
    """Decodes images on an engine's workers; implements :class:`podline.data.sources.decoding.Engine`.

    Args:
        context: the settings that all steps of the job share.
        run: runs a step on the engine; called with the batches' folder, the number of batches, and the step.
    """

    def __init__(self, context: JobContext, run: Callable[[str, int, beam.DoFn], None]) -> None:
        self._context, self._run = context, run
        self._store = open_store(context.root)

    def decode(
        self, becoming: FittedPictures, requests: Iterable[DecodeRequest], name: str
    ) -> tuple[Iterator[Look], StoredRows]:
        """See :meth:`podline.data.sources.decoding.Engine.decode`."""
        batches = f"{self._context.folder}/{name}"
        there, asked = set(self._store.list(batches)), iter(requests)
        firsts = [0]
        while batch_name(batches, len(firsts) - 1, REQUESTS) in there:
            firsts.append(firsts[-1] + self._published(batches, len(firsts) - 1))
        deque(itertools.islice(asked, firsts[-1]), maxlen=0)
        numbered = enumerate(_batches(asked), len(firsts) - 1)
        for images in in_order(partial(self._publish, batches), numbered, self._store.parallel + 1):
            firsts.append(firsts[-1] + images)
        count, step = len(firsts) - 1, DecodeBatches(self._context, batches, becoming, settings.load().parse_limits)
        if any(batch_name(batches, number, LOOKS) not in there for number in range(count)):
            self._run(batches, count, step)
        names = (batch_name(batches, number, LOOKS) for number in range(count))
        found = map(json.loads, in_order(self._store.read_bytes, names, self._store.parallel))
        looks = (Look(*look) for look in itertools.chain.from_iterable(found))
        return looks, StoredRows((batches,), tuple(firsts), self._context.root)

    def shared(self, rows: DecodedRows, shape: tuple[int, int, int], name: str) -> StoredRows:
        """See :meth:`podline.data.sources.decoding.Engine.shared`."""
        batches, length = f"{self._context.folder}/{name[:16]}", row_bytes(shape)
        firsts, there = range(0, rows.count, max(1, _BATCH_BYTES // length)), set(self._store.list(batches))

        def publish(numbered: tuple[int, int]) -> None:
            number, first = numbered
            if (name := batch_name(batches, number, PIXELS)) not in there:
                images = rows.read(np.arange(first, min(first + firsts.step, rows.count)), math.prod(shape))
                self._store.publish_bytes(name, with_checksums(images).tobytes(), replace=True, flush=False)

        deque(in_order(publish, enumerate(firsts), self._store.parallel), maxlen=0)
        return StoredRows((batches,), (*firsts, rows.count), self._context.root)

    def _publish(self, batches: str, numbered: tuple[int, _Batch]) -> int:
        """Publish a batch; return the number of its images."""
        number, batch = numbered
        sizes = [_size(data) for _, data in batch]
        asked = [
            (data if isinstance(data, str) else (start, size), request.size)
            for (request, data), start, size in zip(batch, itertools.accumulate(sizes, initial=0), sizes, strict=False)
        ]
        objects = [data for _, data in batch if isinstance(data, StoredFile)]
        if not objects:
            files = b"".join(data for _, data in batch if isinstance(data, bytes))
            self._store.publish_bytes(batch_name(batches, number, FILES), files, replace=True, flush=False)
        document = json.dumps({"asked": asked, "objects": objects}).encode()  # last: marks the batch as complete
        self._store.publish_bytes(batch_name(batches, number, REQUESTS), document, replace=True, flush=False)
        return len(batch)

    def _published(self, batches: str, number: int) -> int:
        """Return the number of images in a batch that an earlier start of this job published."""
        return len(json.loads(self._store.read_bytes(batch_name(batches, number, REQUESTS)))["asked"])


def _size(data: _File) -> int:
    if isinstance(data, StoredFile):
        return data.bytes
    return 0 if isinstance(data, str) else len(data)


def _batches(requests: Iterable[DecodeRequest]) -> Iterator[_Batch]:
    """Yield the images with their files, in batches.

    The files of a batch are all local or all in a bucket, since workers read the latter from the bucket themselves.
    """
    batch, size, in_bucket = _Batch(), 0, False
    for request in requests:
        path = getattr(request.place, "path", "")
        with reading(path):
            data = stored_at(path) or content(request.place)
        other = not isinstance(data, str) and isinstance(data, StoredFile) != in_bucket
        if batch and (other or size >= _BATCH_BYTES or len(batch) == _BATCH_IMAGES):
            yield batch
            batch, size = [], 0
        in_bucket ^= other
        batch.append((request, data))
        size += _size(data)
    if batch:
        yield batch
