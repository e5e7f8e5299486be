"""Finds images that occur more than once; those in both splits are left out of training.

Those within a split are converted; where their targets contradict each other, that is counted and said.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.arrays import Arrays
from podline.data.rows import SourceSplit
from podline.documents.manifest import Quarantined
from podline.errors import SourceError
from podline.kinds.contract import TextTargets
from podline.plurals import plural

# A test split of which more than this share can also be trained on says nothing about new images.
MAX_SHARED = 0.01
# A split of which more than this share is labelled in two ways is no noise: its labels do not belong to its images.
MAX_CONTRADICTING = 0.01
_CONFIRMED_AT_ONCE = 1_000


def image_crcs(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Compute the CRC-32C of each image's bytes, (n,): equal images have equal ones, and few others do.

    Args:
        images: uint8, (n, size), each row contiguous.
    """
    return np.fromiter(map(google_crc32c.value, images), np.uint32, len(images))


def same_images(
    crcs: npt.NDArray[np.uint32], read: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.uint8]]
) -> list[list[int]]:
    """Find the images that are there more than once: by checksum first, confirmed by sha256.

    Args:
        crcs: of all images, by :func:`image_crcs`.
        read: gives some of the images, by position, as uint8 (n, …); asked only for those whose CRC is not unique.

    Returns:
        For each such image its positions, ascending; ordered by the first of them.
    """
    _values, which, counts = np.unique(crcs, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[which] > 1)
    groups: dict[bytes, list[int]] = {}
    for start in range(0, len(candidates), _CONFIRMED_AT_ONCE):
        positions = candidates[start : start + _CONFIRMED_AT_ONCE]
        for position, image in zip(positions.tolist(), np.ascontiguousarray(read(positions)), strict=True):
            groups.setdefault(hashlib.sha256(image.data).digest(), []).append(position)
    return [group for group in groups.values() if len(group) > 1]


def split_crcs(split: SourceSplit) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of each record's image as it is stored, in the split's order; reads the raw files once."""
    size = math.prod(split.image_shape)
    crcs = np.concatenate([image_crcs(images) for block in split.blocks for images in block.scan(size)])
    return crcs if split.kept is None else crcs[split.kept]


class WithoutRepeated(NamedTuple):
    """A training split without repeated images.

    Attributes:
        train: the split, without images that the test split has too.
        quarantined: names each image left out with the test record that it equals.
        contradicting: split → records that have the image of another one of that split, and another target.
    """

    train: SourceSplit
    quarantined: tuple[Quarantined, ...]
    contradicting: dict[str, int]


def without_repeated(
    dataset: str, targets: TextTargets, class_names: Sequence[str], train: SourceSplit, test: SourceSplit
) -> WithoutRepeated:
    """Look for images that are there more than once, and leave out training images that the test split has too.

    Args:
        dataset: its name.
        targets: of its kind.
        class_names: see :class:`podline.data.sources.source.Source`.
        train: the training split; the raw files are read through once.
        test: the test split.

    Raises:
        SourceError: more than :data:`MAX_SHARED` of the test split are among the training images, or more than
            :data:`MAX_CONTRADICTING` of a split are labelled in two ways.
    """
    first = len(train)

    def read(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        parts = [train.read(positions[positions < first]), test.read(positions[positions >= first] - first)]
        return np.concatenate([part["image"] for part in parts])  # positions come ascending

    groups = [
        ([at for at in group if at < first], [at - first for at in group if at >= first])
        for group in same_images(np.concatenate([split_crcs(train), split_crcs(test)]), read)
    ]
    only_train, of_test = [group[0] for group in groups if not group[1]], [group[1] for group in groups]
    counts = {
        split.name: _contradicting(dataset, targets, class_names, split, equal)
        for split, equal in ((train, only_train), (test, of_test))
    }
    shared = [group for group in groups if group[0] and group[1]]
    apart, found = _without_shared(dataset, train, test, shared)
    return WithoutRepeated(apart, found, {name: count for name, count in counts.items() if count})


def _contradicting(
    dataset: str,
    targets: TextTargets,
    class_names: Sequence[str],
    split: SourceSplit,
    groups: Sequence[Sequence[int]],
) -> int:
    """Count the records of groups of equal images that contradict each other."""

    def of(records: Sequence[int]) -> Arrays:
        places = np.array(records) if split.kept is None else split.kept[records]
        return {name: values[places] for name, values in split.targets.items()}

    odd = [group for group in groups if len(group) > 1 and targets.contradict(of(group))]
    count = sum(map(len, odd))
    if count > max(MAX_CONTRADICTING * len(split), 2):  # one pair proves nothing, in however small a split
        first = odd[0][0]
        other = next(record for record in odd[0] if targets.contradict(of([first, record])))
        words = zip((first, other), targets.words(of([first, other]), class_names), strict=True)
        pair = " and ".join(f"{split.record_name(at)} is {word}" for at, word in words)
        raise SourceError(
            f"{dataset}: {count:,} of the {len(split):,} records of the {split.name} split have the image "
            f"of another one and another label ({pair}, for one) vs {MAX_CONTRADICTING:.0%} at most: labels and "
            "images do not belong together; mend the labels, or leave such images out"
        )
    return count


def _without_shared(
    dataset: str, train: SourceSplit, test: SourceSplit, groups: list[tuple[list[int], list[int]]]
) -> tuple[SourceSplit, tuple[Quarantined, ...]]:
    """Return the training split without the records of groups of equal images, (training, test) records each."""
    twins = {record: of_test[0] for of_train, of_test in groups for record in of_train}
    if not twins:
        return train, ()
    left_out, shared = sorted(twins), sum(len(of_test) for _, of_test in groups)
    if shared > MAX_SHARED * len(test):
        raise SourceError(
            f"{dataset}: {shared:,} of the {len(test):,} test images are training images as well "
            f"({train.record_name(left_out[0])} and {test.record_name(twins[left_out[0]])} are the first) vs "
            f"{MAX_SHARED:.0%} at most: the evaluation would lie inside the training set; "
            "get splits without common images"
        )
    found = [
        Quarantined(
            split=train.name,
            record=train.record_name(index),
            reason=f"the same image as {test.record_name(twins[index])} of the test split",
        )
        for index in left_out
    ]
    places = np.arange(len(train)) if train.kept is None else train.kept
    return replace(train, kept=np.delete(places, left_out)), tuple(found)


def contradiction_lines(counts: Mapping[str, int]) -> list[str]:
    """Return how many records of each split are labelled in two ways, in words."""
    return [
        f"labelled in two ways: {plural(count, 'record')} of the {split} split with the image of another one in it"
        for split, count in counts.items()
    ]
