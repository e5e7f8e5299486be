"""Passes over CIFAR-10's .bin files with grain or WebDataset, as in their guides.

``python other_readers.py SIDE JSON`` runs in an environment without Podline, and prints the result as JSON. The options
are those that were fastest on two cores.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_SHUFFLE_BUFFER = 10_000  # as in plain.py
_SHAPE, _PIXELS = (32, 32, 3), 3072
Batches = Iterable[tuple[np.ndarray, np.ndarray]]


def checked_pass(begin: Callable[[], Batches], batch_size: int) -> dict[str, float]:
    """Check the images of a first pass, and time a second pass.

    Returns:
        ``seconds``; ``examples``: the number in a pass; ``checksum``: a sum of all pairs of image and label, which does
        not depend on their order.
    """
    weights, checksum = np.arange(1, _PIXELS + 1), 0
    for images, labels in begin():
        if images.shape != (batch_size, *_SHAPE) or images.dtype != np.uint8:
            raise AssertionError(f"got {images.dtype} {images.shape}, expected uint8 {(batch_size, *_SHAPE)}")
        checksum += int((images.reshape(batch_size, -1) @ weights) @ (labels + 1))
    started = time.perf_counter()
    batches = sum(1 for _ in begin())
    return {"seconds": time.perf_counter() - started, "examples": batches * batch_size, "checksum": checksum}


def _examples(source: str) -> Iterator[tuple[np.ndarray, int]]:
    for file in sorted(Path(source).glob("data_batch_*.bin")):
        for row in np.fromfile(file, np.uint8).reshape(-1, _PIXELS + 1):
            yield np.ascontiguousarray(row[1:].reshape(3, 32, 32).transpose(1, 2, 0)), int(row[0])


def grain_batches(source: str, work: str, batch_size: int) -> Callable[[], Batches]:
    """Write an ArrayRecord file; return a function that begins a pass in which grain shuffles all records."""
    import grain  # noqa: PLC0415 # pyright: ignore[reportMissingImports] (only in the script's environment)
    from absl import flags  # noqa: PLC0415
    from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415

    flags.FLAGS(["other_readers"])  # grain reads absl's flags
    path = str(Path(work) / "images.array_record")
    writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
    for image, label in _examples(source):
        writer.write(bytes([label]) + image.tobytes())
    writer.close()

    def parse(record: bytes) -> tuple[np.ndarray, int]:
        return np.frombuffer(record, np.uint8, offset=1).reshape(_SHAPE), record[0]

    examples = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(path)).shuffle(seed=0).map(parse)
    batches = examples.batch(batch_size, drop_remainder=True)
    return lambda: batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def webdataset_batches(source: str, work: str, batch_size: int) -> Callable[[], Batches]:
    """Write a tar of .npy and .cls files; return a function that begins a pass, shuffled in a buffer."""
    import webdataset  # noqa: PLC0415 # pyright: ignore[reportMissingImports] (as grain)

    path = Path(work) / "images.tar"
    with tarfile.open(path, "w") as tar:
        for number, (image, label) in enumerate(_examples(source)):
            array = io.BytesIO()
            np.save(array, image)
            for ending, content in (("npy", array.getvalue()), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number:06d}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    def batches() -> Batches:
        examples: Any = webdataset.WebDataset([str(path)], shardshuffle=100).shuffle(_SHUFFLE_BUFFER)
        return examples.decode().to_tuple("npy", "cls").batched(batch_size, partial=False)

    return batches


SIDES = {"grain": grain_batches, "webdataset": webdataset_batches}


def main(side: str, arguments: str) -> None:
    """Time a pass with the reader ``side``, grain or webdataset; write the result as JSON to standard output."""
    given = json.loads(arguments)
    json.dump(checked_pass(SIDES[side](**given), given["batch_size"]), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
