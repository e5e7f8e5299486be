"""Opens a source of small images: decodes each raw file once into the cache folder, and reads images by position.

It serves users' data sets whose raw files have a format that Podline does not know; docs/how-to/data-set.md has an
example. A child process with limits calls the user's code that reads a file. The cache key is a checksum of the raw
file, the data set's name, version and code, its kind's code, and its classes.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.rawfiles import RawFile, parsing, raw_file, reading
from podline.data.rows import CachedImages, SourceSplit, cached_images, write_images
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Source
from podline.documents.manifest import SPLITS
from podline.entry_points import reason
from podline.errors import SourceError
from podline.kinds.table import code_of_targets, text_targets
from podline.recipes.datasets import DataSet
from podline.recipes.own_code import of_dataset
from podline.sandbox import Sandbox, limits_of
from podline.store import digests

Read = Callable[[Path], Iterable[tuple[npt.ArrayLike, Any]]]
"""Yields a raw file's images, uint8 (height, width, channels) or (height, width), each with its target.

A target is a value of the data set's kind (:meth:`podline.kinds.contract.TextTargets.text`): for classes, a number from
0 on. The function must be importable from a module, since a child process calls it.
"""

_MAKER = f"{__name__}:decoder"
_MEMORY, _RATE, _WAIT = 16.0, 4e6, 60.0  # memory per byte of a file, with any compression; bytes per second; seconds


def decoded_source(
    dataset: DataSet,
    source: str,
    splits: Mapping[str, Sequence[str]],
    class_names: Sequence[str],
    read: Read,
    work: Path,
) -> Source:
    """Open a folder of raw files, and read each with a function.

    Args:
        dataset: the data set.
        source: the folder with the files, here or in ``gs://``.
        splits: ``train``, ``test`` and, optionally, ``validation`` → the names of their files.
        class_names: names by class number; empty if the kind has none, or if ``read`` returns the names.
        read: see :data:`Read`; all images of a data set have one shape.
        work: the cache folder.

    Raises:
        SettingsError: the data set's kind cannot read targets from text.
        SourceError: a file is missing, unreadable or has invalid content.
        StoreError: the cache folder cannot be written.
    """
    try:
        pickle.dumps(read)
    except Exception as error:
        raise SourceError(
            f"{dataset.name}: a child process calls `read`; give a function of a module: {reason(error)}"
        ) from error
    splits = {split: splits[split] for split in SPLITS if split in splits}
    names, targets, known = [*chain(*splits.values())], text_targets(dataset.kind), tuple(class_names)
    with (
        on_this_machine(source, work, names.__contains__) as place,
        Sandbox(_MAKER, read, dataset.kind, known) as sandbox,
    ):
        missing = [name for name in names if not (place / name).is_file()]
        if missing:
            raise SourceError(f"{place} lacks {', '.join(missing)}; give the folder that holds {', '.join(names)}")
        raw = {name: raw_file(name, place / name) for name in names}
        images = {name: _decoded(dataset, file, known, work, sandbox) for name, file in raw.items()}
        _refuse_other_shapes(raw, images)
    texts = {
        split: np.concatenate([images[name].labels[:, 0] for name in files]).tolist() for split, files in splits.items()
    }
    class_names = known or targets.class_names(set(chain(*texts.values())))
    return Source(
        dataset.name,
        class_names,
        tuple(file.info for file in raw.values()),
        tuple(
            _split(split, [images[name] for name in splits[split]], targets.arrays(texts[split], class_names))
            for split in splits
        ),
        raw=tuple(raw.values()),
        kind=dataset.kind,
    )


def _decoded(
    dataset: DataSet, raw: RawFile, class_names: tuple[str, ...], work: Path, sandbox: Sandbox
) -> CachedImages:
    def decode(folder: Path) -> None:
        limits = limits_of(raw.bytes, _MEMORY, _RATE)._replace(wait=_WAIT)
        with reading(raw.path):
            sandbox.one((raw.path, folder), limits, raw.place)

    code = [of_dataset(dataset), dataset.kind, code_of_targets(dataset.kind)]
    key = digests.of_json([dataset.name, dataset.version, *code, class_names, raw.sha256])
    return cached_images(work, key, raw.name, decode)


def decoder(read: Read, kind: str, class_names: tuple[str, ...]) -> Callable[[tuple[Path, Path]], None]:
    """Return a function that decodes a raw file into a folder; runs in a sandbox."""
    targets = text_targets(kind)

    def text(value: Any) -> str:
        return targets.text(value, class_names)

    def decode(item: tuple[Path, Path]) -> None:
        path, folder = item
        texts: list[tuple[str]] = []
        write_images(folder, _images(path, read, text, texts), texts)
        if not texts:
            raise SourceError(f"{path} holds no image: 0 vs 1 at least")

    return decode


def _images(
    path: Path, read: Read, text: Callable[[Any], str], texts: list[tuple[str]]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a raw file's images, with three dimensions, and collect the texts of their targets."""
    shape: tuple[int, ...] = ()
    for image, target in _given(path, read):
        named = f"{path}: image {len(texts)}"
        array = image[..., np.newaxis] if image.ndim == 2 else image
        if array.dtype != np.uint8 or array.ndim != 3 or not math.prod(array.shape):
            raise SourceError(f"{named} is {image.dtype} {_sides(image.shape)} vs uint8 height × width × channels")
        try:
            texts.append((text(target),))
        except ValueError as error:
            raise SourceError(f"{named} {error}") from error
        if shape and array.shape != shape:
            raise SourceError(f"{named} is {_sides(array.shape)} vs {_sides(shape)}")
        shape = array.shape
        yield array[np.newaxis]


def _given(path: Path, read: Read) -> Iterator[tuple[npt.NDArray[Any], Any]]:
    """Yield the items of ``read``; add the file's name to its errors."""
    with parsing(path, "images"):
        for image, target in read(path):
            yield np.asarray(image), target


def _refuse_other_shapes(raw: Mapping[str, RawFile], images: Mapping[str, CachedImages]) -> None:
    first = next(iter(raw))
    for name, found in images.items():
        if found.shape != images[first].shape:
            sides = f"{_sides(found.shape)} vs {_sides(images[first].shape)}"
            raise SourceError(f"{raw[name].path}: images are {sides} in {raw[first].path}")


def _split(name: str, parts: Sequence[CachedImages], targets: dict[str, npt.NDArray[Any]]) -> SourceSplit:
    height, width, channels = parts[0].shape
    return SourceSplit(name, (height, width, channels), tuple(part.block for part in parts), targets)


def _sides(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "a number"
