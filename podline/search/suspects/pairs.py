"""Finds near-duplicates with different labels, within a split and across splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.hashing import Boxes, hashes
from podline.data.images.near import CONTRAST, agree, close
from podline.data.reader import SplitReader
from podline.data.records import IMAGE

Numbers = npt.NDArray[np.int64]
_BLOCK = 1_000


class LabelPair(NamedTuple):
    """A record that nearly repeats a record with another label.

    Attributes:
        split: split of the record.
        record: position of the record.
        other_split: split of the repeated record.
        other: position of the repeated record.
        other_label: label of the repeated record.
    """

    split: str
    record: int
    other_split: str
    other: int
    other_label: int


def label_pairs(readers: Mapping[str, SplitReader], labels: Mapping[str, Numbers]) -> list[LabelPair]:
    """Return the pairs of near-duplicates with different labels; each record comes first in at most one pair.

    Args:
        readers: reader of each split.
        labels: labels of each split's records.
    """
    names, sizes = [*readers], [len(reader) for reader in readers.values()]
    edges = np.cumsum([0, *sizes])
    every = np.concatenate([labels[name] for name in names])

    shape = next(iter(readers.values())).gather(np.arange(1), (IMAGE,))[IMAGE].shape[1:]

    def read(rows: Numbers) -> npt.NDArray[np.uint8]:
        splits = np.searchsorted(edges, rows, side="right") - 1
        found = np.empty((len(rows), *shape), np.uint8)
        for number, reader in enumerate(readers.values()):
            mine = splits == number
            found[mine] = reader.gather(rows[mine] - edges[number], (IMAGE,))[IMAGE]
        return found

    boxes = np.concatenate([_boxes(reader) for reader in readers.values()])
    hashed = hashes(read, boxes)
    clear = np.flatnonzero(hashed["contrast"] >= CONTRAST)
    pairs = clear[_close(hashed["hash"][clear], every[clear])]
    pairs = pairs[agree(read, boxes, *pairs.T)]
    found = list[LabelPair]()
    for first, second in pairs[np.unique(pairs[:, 0], return_index=True)[1]].tolist():
        (split, record), (other_split, repeated) = (_place(edges, row) for row in (first, second))
        found.append(LabelPair(names[split], record, names[other_split], repeated, int(every[second])))
    return found


def _close(hashed: npt.NDArray[np.uint64], labels: Numbers) -> Numbers:
    """Return the indices of pairs of close hashes with different labels, (n, 2), in ascending order.

    Only images of different labels are compared, so that many equal images of one label cannot hide a pair.
    """
    parts = [np.empty((0, 2), np.int64)]
    for label in np.unique(labels):
        mine, others = np.flatnonzero(labels == label), np.flatnonzero(labels > label)
        near = close(hashed[mine], hashed[others])
        parts.append(np.sort(np.stack([mine[near.test], others[near.train]], axis=1), axis=1))
    return np.unique(np.concatenate(parts), axis=0)


def _place(edges: Numbers, row: int) -> tuple[int, int]:
    split = int(np.searchsorted(edges, row, side="right")) - 1
    return split, row - int(edges[split])


def _boxes(reader: SplitReader) -> Boxes:
    """Return height and width, in pixels, of each image without its black bars, (n, 2)."""
    found = [
        _shown(reader.gather(np.arange(first, min(first + _BLOCK, len(reader))), (IMAGE,))[IMAGE])
        for first in range(0, len(reader), _BLOCK)
    ]
    return np.concatenate(found)


def _shown(images: npt.NDArray[np.uint8]) -> Boxes:
    sides = []
    for axis in (1, 2):
        lit: npt.NDArray[np.bool_] = np.any(images, axis=(3 - axis, 3))
        bars = np.minimum(lit.argmax(axis=1), lit[:, ::-1].argmax(axis=1))
        sides.append(images.shape[axis] - 2 * bars)
    return np.stack(sides, axis=1).astype(np.int16)
