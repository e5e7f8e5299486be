"""Finds images that occur more than once; those in both splits are left out of training.

Those within a split are converted; where their labels differ, that is counted and said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from podline.data.content import image_crcs, same_images
from podline.data.records import LABEL
from podline.data.rows import RawRows, SourceSplit
from podline.documents.manifest import Quarantined
from podline.errors import SourceError
from podline.plurals import plural

Rows = TypeVar("Rows", bound=RawRows)

# A test split of which more than this share can also be trained on says nothing about new images.
MAX_SHARED = 0.01
# A split of which more than this share is labelled in two ways is no noise: its labels do not belong to its images.
MAX_CONTRADICTING = 0.01


def split_crcs(split: SourceSplit) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of each record's image as it is stored, in the split's order; reads the raw files once."""
    size = math.prod(split.image_shape)
    crcs = np.concatenate([image_crcs(images) for block in split.blocks for images in block.scan(size)])
    return crcs if split.kept is None else crcs[split.kept]


@dataclass(frozen=True)
class Repeated:
    """The images of a source that are there more than once.

    Attributes:
        train: groups of training records that have one image, which no test record has.
        test: groups of test records that have one image.
        shared: groups that have records of both: (training, test).
    """

    train: tuple[list[int], ...]
    test: tuple[list[int], ...]
    shared: tuple[tuple[list[int], list[int]], ...]


def repeated_images(source: RawRows) -> Repeated:
    """Look for images that are there more than once; the raw files are read through once."""
    train, test = _splits(source)
    first = len(train)

    def read(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        parts = [train.read(positions[positions < first]), test.read(positions[positions >= first] - first)]
        return np.concatenate([part["image"] for part in parts])  # positions come ascending

    groups = same_images(np.concatenate([split_crcs(train), split_crcs(test)]), read)
    apart = [([at for at in group if at < first], [at - first for at in group if at >= first]) for group in groups]
    return Repeated(
        train=tuple(train for train, test in apart if len(train) > 1 and not test),
        test=tuple(test for _, test in apart if len(test) > 1),
        shared=tuple((train, test) for train, test in apart if train and test),
    )


def quarantine_shared(source: Rows, repeated: Repeated | None = None) -> Rows:
    """Return the source without those training records whose image the test split has too.

    Args:
        source: what is converted.
        repeated: its images that are there more than once; looked for by default.

    Returns:
        The source itself if there are none; otherwise one whose training split leaves them out and whose quarantine
        names each of them with the test record that it equals.

    Raises:
        SourceError: more than :data:`MAX_SHARED` of the test split are among the training images.
    """
    train, test = _splits(source)
    repeated = repeated or repeated_images(source)
    twins = {record: of_test[0] for of_train, of_test in repeated.shared for record in of_train}
    shared = sum(len(of_test) for _, of_test in repeated.shared)
    if not twins:
        return source
    left_out = sorted(twins)
    if shared > MAX_SHARED * len(test):
        raise SourceError(
            f"{source.dataset}: {shared:,} of the {len(test):,} test images are training images as well "
            f"({train.record_name(left_out[0])} and {test.record_name(twins[left_out[0]])} are the first) vs "
            f"{MAX_SHARED:.0%} at most: the evaluation would lie inside the training set; get splits that are apart"
        )
    found = tuple(
        Quarantined(
            split=train.name,
            record=train.record_name(index),
            reason=f"the same image as {test.record_name(twins[index])} of the test split",
        )
        for index in left_out
    )
    places = np.arange(len(train)) if train.kept is None else train.kept
    apart = replace(train, kept=np.delete(places, left_out))
    return replace(
        source,
        splits=tuple(apart if split is train else split for split in source.splits),
        quarantined=source.quarantined + found,
    )


def contradictions(source: RawRows, repeated: Repeated) -> dict[str, int]:
    """How many records of each split have the image of another one of that split, and another label.

    Args:
        source: what is converted, as :func:`repeated_images` saw it.
        repeated: its images that are there more than once.

    Raises:
        SourceError: they are more than :data:`MAX_CONTRADICTING` of a split.
    """
    counts = {}
    for split, groups in zip(_splits(source), (repeated.train, repeated.test), strict=True):
        labels = split.labels[LABEL] if split.kept is None else split.labels[LABEL][split.kept]
        odd = [group for group in groups if len(set(labels[group].tolist())) > 1]
        count = sum(map(len, odd))
        if count > max(MAX_CONTRADICTING * len(split), 2):  # one pair proves nothing, in however small a split
            first = odd[0][0]
            other = next(record for record in odd[0] if labels[record] != labels[first])
            pair = " and ".join(f"{split.record_name(at)} is {source.class_names[labels[at]]}" for at in (first, other))
            raise SourceError(
                f"{source.dataset}: {count:,} of the {len(split):,} records of the {split.name} split have the image "
                f"of another one and another label ({pair}, for one) vs {MAX_CONTRADICTING:.0%} at most: labels and "
                "images do not belong together; mend the labels, or leave such images out"
            )
        if count:
            counts[split.name] = count
    return counts


def contradiction_lines(counts: Mapping[str, int]) -> list[str]:
    """Return what :func:`contradictions` found, in words."""
    return [
        f"labelled in two ways: {plural(count, 'record')} of the {split} split with the image of another one in it"
        for split, count in counts.items()
    ]


def _splits(source: RawRows) -> tuple[SourceSplit, SourceSplit]:
    splits = {split.name: split for split in source.splits}
    return splits["train"], splits["test"]
