"""Open raw files with many images of one shape: CIFAR, MNIST, and formats that only a user's code can read.

A child process decodes each raw file once into a cache folder: the pixels by row, and columns with the label and digest
of each image. A table lists the images of all files, as for the user's own images.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.base.cores import usable_cores
from podline.base.errors import SourceError
from podline.data.decoded_rows import PIXELS, joined
from podline.data.images.arrow_file import TEXT, compute, encoded
from podline.data.images.deciding import decide, refuse_empty
from podline.data.images.image_table import ImageTable, write_columns
from podline.data.raw_arrays import COLUMNS, Arrays, sides, write_parts
from podline.data.rawfiles import RawFile, check_official, made_once, raw_file, reading
from podline.data.record_table import digest_column
from podline.data.records import label_feature
from podline.data.sandbox.pool import Sandbox
from podline.data.sources.decoding import DECODING
from podline.data.sources.source import Source, splits_of
from podline.documents.manifest import TRAINING
from podline.recipes.kind_table import text_targets
from podline.store import digests
from podline.store.folder import FolderStore
from podline.store.prefetch import in_order

_FORM = 3  # format version of the cached files


class _Found(NamedTuple):
    """The images of a group of files that was decoded together.

    Attributes:
        split: split of the images.
        file: first file of the group.
        folder: cache folder of the group.
        shape: (height, width, channels) of each image.
        others: values of further label features, uint8 (n,) each.
        rows: number of images.
    """

    split: str
    file: RawFile
    folder: Path
    shape: tuple[int, int, int]
    others: Mapping[str, npt.NDArray[np.uint8]]
    rows: int

    def columns(self, first: int) -> dict[str, Any]:
        """Return the columns of the image table; the images' rows of pixels begin at ``first``."""
        with np.load(self.folder / COLUMNS) as stored:
            labels, known = stored["labels"], stored["identities"]
        values, codes = np.unique(labels, return_inverse=True)
        numbers = pa.array(np.arange(self.rows)).cast(pa.string())
        keys = compute.binary_join_element_wise(f"{self.file.name}[", numbers, "]", "")
        identities = digest_column(known)
        return {
            "key": keys.cast(TEXT),
            "label": pa.array(list(map(encoded, values.tolist())), TEXT).take(pa.array(codes)),
            "split": self.split,
            "row": pa.array(np.arange(first, first + self.rows)),
            "identity": identities,
            "pixels": identities,
            "bytes": math.prod(self.shape),
            "height": self.shape[0],
            "width": self.shape[1],
        }


def open_arrays(arrays: Arrays, place: str, work: Path, sandbox: Sandbox) -> Source:
    """Open raw files as a source; decode those that are not in the cache.

    Args:
        arrays: the raw files.
        place: name of the source, for errors.
        work: the cache folder.
        sandbox: a sandbox with the maker CALLER, which calls a given function in a child process.

    Raises:
        SourceError: a file is damaged or was changed meanwhile, images differ in shape, a class name is invalid, a
            split has no image or shares too many images with another split, or too many labels contradict each other.
        StoreError: the cache folder cannot be written.
    """
    groups = [(split, files) for split, of_split in arrays.splits.items() for files in of_split]
    folders = list(in_order(partial(_decoded, arrays, work, sandbox), groups, usable_cores()))
    found = [_found(split, files[0], folder) for (split, files), folder in zip(groups, folders, strict=True)]
    shape = _common_shape(place, found)
    firsts = accumulate((each.rows for each in found), initial=0)
    with FolderStore(work).workspace("table") as folder:
        table = folder / "images.arrow"
        write_columns(table, (each.columns(first) for each, first in zip(found, firsts, strict=False)))
        images, targets = ImageTable(table), text_targets(arrays.kind)
    decided = decide(images, frozenset(arrays.splits), 0.0, targets, published=True)
    refuse_empty(place, images, arrays.splits)
    names = arrays.class_names or targets.class_names(images.labels.of(images.kept(TRAINING)))
    pixels = joined([folder / PIXELS for folder in folders], shape)
    if engine := DECODING.get():
        pixels = engine.shared(pixels, shape, digests.of_list(folder.name for folder in folders))
    others = {name: np.concatenate([each.others[name] for each in found if each.others]) for name in arrays.others}
    numbers = {split: np.flatnonzero(images.kept(split)) for split in arrays.splits}
    return Source(
        dataset=arrays.dataset,
        kind=arrays.kind,
        settings=None,
        skeleton=None,
        files=tuple(file.info for file in arrays.raw),
        class_names=names,
        images=images,
        splits=splits_of(images, numbers, pixels, shape, targets, names, others),
        targets=(
            *targets.fields(names),
            *(label_feature(name, others) for name, others in arrays.others.items()),
        ),
        official=check_official(arrays.dataset, arrays.raw, arrays.archive),
        contradicting=decided.contradicting,
    )


def _common_shape(place: str, found: Sequence[_Found]) -> tuple[int, int, int]:
    first = next((each for each in found if each.rows), None)
    if first is None:
        raise SourceError(f"{place}: no file has an image, expected at least one; restore the files")
    for each in found:
        if each.rows and each.shape != first.shape:
            raise SourceError(
                f"{each.file.path}: images are {sides(each.shape)} vs {sides(first.shape)} in {first.file.path}; give "
                "files with images of one shape"
            )
    return first.shape


def _decoded(arrays: Arrays, work: Path, sandbox: Sandbox, group: tuple[str, tuple[RawFile, ...]]) -> Path:
    """Decode a group of files unless it is cached; return its cache folder."""
    _, files = group
    paths, limits = [file.path for file in files], arrays.limits(sum(file.bytes for file in files))

    def decode(folder: Path) -> list[RawFile]:
        with reading(paths[0]):
            sandbox.one((write_parts, arrays.read, paths, folder), limits, str(paths[0]))
            for file in files:
                if file.modified not in (0, file.path.stat().st_mtime_ns):
                    raise SourceError(f"{file.path} was changed while it was read; convert again")
        return [raw_file(COLUMNS, folder / COLUMNS)]

    read = hashlib.sha256(pickle.dumps(arrays.read)).hexdigest()
    key = digests.of_json([_FORM, read, *arrays.key, *(file.sha256 for file in files)])
    return made_once(work, key, decode)[0].path.parent


def _found(split: str, file: RawFile, folder: Path) -> _Found:
    with np.load(folder / COLUMNS) as stored:
        names = set(stored) - {"shape", "labels", "identities"}
        count, height, width, channels = stored["shape"].tolist()
        return _Found(split, file, folder, (height, width, channels), {name: stored[name] for name in names}, count)
