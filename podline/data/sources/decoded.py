"""Opens raw files whose format only a user's code can read; docs/how-to/data-set.md has an example.

A child process with limits calls the user's function. Arguments bound into the function are part of the cache key.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.base.entry_points import reason
from podline.base.errors import SettingsError, SourceError
from podline.data.images.arrays import open_arrays
from podline.data.raw_arrays import Arrays, FilePart, sides
from podline.data.rawfiles import raw_file, reading
from podline.data.sandbox.limits import ParseLimits, limits_of
from podline.data.sandbox.pool import CALLER, Sandbox
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Source
from podline.documents.manifest import SPLITS, TEST, TRAINING, VALIDATION
from podline.recipes.datasets import DataSet
from podline.recipes.kind_table import code_of_targets, text_targets
from podline.recipes.own_code import of_dataset

Read = Callable[[Path], Iterable[tuple[npt.ArrayLike, Any]]]
"""Yields a raw file's images, uint8 (height, width, channels) or (height, width), each with its target.

A target is a value of the data set's kind (:meth:`podline.recipes.targets.TextTargets.text`): for classes, a name or
a number, which is an index into the class names if these are given. The function must be importable from a module,
since a child process calls it.
"""

_MEMORY, _RATE, _WAIT = 16.0, 4e6, 60.0  # memory per byte of a file, with any compression; bytes per second; seconds
_PART_BYTES = 4_000_000  # bytes of the images that are decoded at a time


def decoded_source(
    dataset: DataSet,
    source: str,
    splits: Mapping[str, Sequence[str]],
    class_names: Sequence[str],
    read: Read,
    work: Path,
) -> Source:
    """Open a folder of raw files, and read each file with the function ``read``.

    Args:
        dataset: the data set.
        source: the folder with the files, here or in ``gs://``.
        splits: ``train``, ``test`` and, optionally, ``validation`` → the names of their files.
        class_names: names by class number; empty if the kind has none, or to use the training images' targets.
        read: see :data:`Read`; all images of a data set have one shape.
        work: the cache folder.

    Raises:
        SettingsError: the data set's kind cannot read targets from text, or ``splits`` lacks a split or has others.
        SourceError: ``read`` cannot be sent to a child process, or a file is missing, unreadable or invalid.
        StoreError: the cache folder cannot be written.
    """
    try:
        pickle.dumps(read)
    except Exception as error:
        raise SourceError(
            f"{dataset.name}: `read` cannot be sent to a child process ({reason(error)}); give a function of a module"
        ) from error
    if not {TRAINING, TEST} <= splits.keys() <= {*SPLITS}:
        raise SettingsError(
            f"{dataset.name}: got files of the splits {', '.join(splits) or 'none'}, expected {TRAINING}, {TEST} and, "
            f"optionally, {VALIDATION}; rename or add splits in the data set's code"
        )
    splits = {split: splits[split] for split in SPLITS if split in splits}
    names = [*chain(*splits.values())]
    code = [of_dataset(dataset), code_of_targets(dataset.kind)]
    with on_this_machine(source, work, names.__contains__) as place, Sandbox(CALLER, read) as sandbox:
        missing = [name for name in names if not (place / name).is_file()]
        if missing:
            raise SourceError(f"{place} lacks {', '.join(missing)}; give the folder that holds {', '.join(names)}")
        raw = {name: raw_file(name, place / name) for name in names}
        arrays = Arrays(
            dataset.name,
            tuple(raw.values()),
            {split: [(raw[name],) for name in files] for split, files in splits.items()},
            partial(read_file, read, dataset.kind, tuple(class_names)),
            key=[dataset.name, dataset.version, *code],
            class_names=tuple(class_names),
            kind=dataset.kind,
            limits=_limits,
        )
        return open_arrays(arrays, str(place), work, sandbox)


def _limits(size: int) -> ParseLimits:
    return limits_of(size, _MEMORY, _RATE)._replace(wait=_WAIT)


def read_file(read: Read, kind: str, class_names: tuple[str, ...], path: Path) -> Iterator[FilePart]:
    """Yield a raw file's images, (n, height, width, channels), with their targets as text; runs in a sandbox."""
    targets, shape = text_targets(kind), tuple[int, ...]()
    images, texts = list[npt.NDArray[np.uint8]](), list[str]()
    with reading(path, "images"):
        for number, (given, target) in enumerate(read(path)):
            named, image = f"{path}: image {number}", np.asarray(given)
            array = image[..., np.newaxis] if image.ndim == 2 else image
            if array.dtype != np.uint8 or array.ndim != 3 or not math.prod(array.shape):
                raise SourceError(
                    f"{named} is {image.dtype} {sides(image.shape)}, expected uint8 height × width × channels"
                )
            try:
                texts.append(targets.text(target, class_names))
            except ValueError as error:
                raise SourceError(f"{named} {error}") from error
            shape = shape or array.shape
            if array.shape != shape:
                raise SourceError(
                    f"{named} has the shape {sides(array.shape)} vs {sides(shape)} of the images before it"
                )
            images.append(array)
            if len(images) * array.nbytes >= _PART_BYTES:
                yield FilePart(np.stack(images), texts)
                images, texts = [], []
    if images:
        yield FilePart(np.stack(images), texts)
