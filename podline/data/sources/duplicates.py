"""Finds repeated images; an image in two splits is left out of the earlier one.

Repeated images within a split are converted; those with contradicting targets are counted and reported.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.arrays import Arrays
from podline.data.rows import SourceSplit
from podline.documents.manifest import Quarantined, split_in_words
from podline.errors import SourceError
from podline.kinds.contract import TextTargets
from podline.plurals import plural

# Above this share of test images that also occur in training, a test says nothing about new images.
MAX_SHARED = 0.01
# Above this share of contradicting labels, the labels do not belong to the images; less is noise.
MAX_CONTRADICTING = 0.01
_CONFIRMED_AT_ONCE = 1_000


def image_crcs(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Compute the CRC-32C of each image's bytes, (n,); few different images share one.

    Args:
        images: uint8, (n, size), each row contiguous.
    """
    return np.fromiter(map(google_crc32c.value, images), np.uint32, len(images))


def same_images(
    crcs: npt.NDArray[np.uint32], read: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.uint8]]
) -> list[list[int]]:
    """Find repeated images: by CRC first, confirmed by sha256.

    Args:
        crcs: CRCs of all images, from :func:`image_crcs`.
        read: returns some images by position as uint8 (n, …); called only for images whose CRC is not unique.

    Returns:
        For each repeated image its positions, ascending; ordered by the first position.
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
    """Return the CRC-32C of each record's image as stored, in the split's order; reads the raw files once."""
    size = math.prod(split.image_shape)
    crcs = np.concatenate([image_crcs(images) for block in split.blocks for images in block.scan(size)])
    return crcs if split.kept is None else crcs[split.kept]


class WithoutRepeated(NamedTuple):
    """Splits that share no image.

    Attributes:
        splits: the splits, without images that a later split also has.
        quarantined: the excluded images, each with the record that it equals.
        contradicting: split → number of records whose image another record has with another target.
    """

    splits: tuple[SourceSplit, ...]
    quarantined: tuple[Quarantined, ...]
    contradicting: dict[str, int]


def without_repeated(
    dataset: str, targets: TextTargets, class_names: Sequence[str], splits: Sequence[SourceSplit]
) -> WithoutRepeated:
    """Leave images out of a split if a later split has them too, and find contradicting records.

    Args:
        dataset: name of the data set.
        targets: targets of its kind.
        class_names: see :class:`podline.data.sources.source.Source`.
        splits: the splits in the order of :data:`podline.documents.manifest.SPLITS`; the raw files are read once.

    Raises:
        SourceError: an earlier split has more than :data:`MAX_SHARED` of a split, or more than
            :data:`MAX_CONTRADICTING` of a split have contradicting labels.
    """
    starts = np.cumsum([0, *map(len, splits)])

    def read(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        parts = np.split(positions, np.searchsorted(positions, starts[1:-1]))  # positions are ascending
        return np.concatenate(
            [split.read(part - start)["image"] for split, part, start in zip(splits, parts, starts, strict=False)]
        )

    groups = [
        [[at - start for at in group if start <= at < end] for start, end in pairwise(starts.tolist())]
        for group in same_images(np.concatenate([split_crcs(split) for split in splits]), read)
    ]
    counts = {
        split.name: _contradicting(
            dataset, targets, class_names, split, [group[place] for group in groups if not any(group[place + 1 :])]
        )
        for place, split in enumerate(splits)
    }
    apart, found = list(splits), list[Quarantined]()
    for place, split in enumerate(splits):
        twins = dict[int, tuple[SourceSplit, int]]()
        for later in reversed(range(place + 1, len(splits))):
            shared = [(group[place], group[later]) for group in groups if group[place] and group[later]]
            _refuse_shared(dataset, split, splits[later], shared)
            for mine, theirs in shared:
                twins.update({record: (splits[later], theirs[0]) for record in mine if record not in twins})
        if twins:
            places = np.arange(len(split)) if split.kept is None else split.kept
            apart[place] = replace(split, kept=np.delete(places, sorted(twins)))
        for record, (other, twin) in sorted(twins.items(), key=itemgetter(0)):
            reason = f"the same image as {other.record_name(twin)} of the {other.name} split"
            found.append(Quarantined(split=split.name, record=split.record_name(record), reason=reason))
    return WithoutRepeated(tuple(apart), tuple(found), {name: count for name, count in counts.items() if count})


def _contradicting(
    dataset: str,
    targets: TextTargets,
    class_names: Sequence[str],
    split: SourceSplit,
    groups: Sequence[Sequence[int]],
) -> int:
    """Count the records in groups of equal images with contradicting targets."""

    def of(records: Sequence[int]) -> Arrays:
        places = np.array(records) if split.kept is None else split.kept[records]
        return {name: values[places] for name, values in split.targets.items()}

    odd = [group for group in groups if len(group) > 1 and targets.contradict(of(group))]
    count = sum(map(len, odd))
    if count > max(MAX_CONTRADICTING * len(split), 2):  # one pair proves nothing, even in a small split
        first = odd[0][0]
        other = next(record for record in odd[0] if targets.contradict(of([first, record])))
        words = zip((first, other), targets.words(of([first, other]), class_names), strict=True)
        pair = " and ".join(f"{split.record_name(at)} is {word}" for at, word in words)
        raise SourceError(
            f"{dataset}: {count:,} of the {len(split):,} records of the {split.name} split have the image "
            f"of another one and another label ({pair}, for one) vs {MAX_CONTRADICTING:.0%} at most: labels and "
            "images do not belong together; correct the labels, or leave such images out"
        )
    return count


def _refuse_shared(
    dataset: str, split: SourceSplit, later: SourceSplit, groups: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> None:
    """Check that two splits share few images, given the shared records of each split."""
    if (shared := sum(len(theirs) for _, theirs in groups)) > MAX_SHARED * len(later):
        first, twin = min((mine[0], theirs[0]) for mine, theirs in groups)
        raise SourceError(
            f"{dataset}: {shared:,} of the {len(later):,} {later.name} images are {split_in_words(split.name)} images "
            f"as well ({split.record_name(first)} and {later.record_name(twin)} are the first) vs {MAX_SHARED:.0%} at "
            "most: the score would not hold for new images; get splits without common images"
        )


def contradiction_lines(counts: Mapping[str, int]) -> list[str]:
    """Return one line per split with the number of contradicting records."""
    return [
        f"labelled in two ways: {plural(count, 'record')} of the {split} split with the image of another one in it"
        for split, count in counts.items()
    ]
