"""Images that training and test split share: they are kept out of training."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from podline.data.content import image_crcs, same_images
from podline.data.manifest import Quarantined
from podline.data.sources.source import Source, SourceSplit
from podline.errors import SourceError

# A test split of which more than this share can also be trained on says nothing about new images.
MAX_SHARED = 0.01


def split_crcs(split: SourceSplit) -> npt.NDArray[np.uint32]:
    """The CRC-32C of each record's image as it is stored, in the split's order; the raw files are read through once."""
    size = math.prod(split.image_shape)
    crcs = np.concatenate([image_crcs(images) for block in split.blocks for images in block.scan(size)])
    return crcs if split.kept is None else crcs[split.kept]


def quarantine_shared(source: Source) -> Source:
    """The source without those training records whose image the test split has too.

    Returns:
        The source itself if there are none; otherwise one whose training split leaves them out and whose quarantine
        names each of them with the test record that it equals.

    Raises:
        SourceError: more than :data:`MAX_SHARED` of the test split are among the training images.
    """
    splits = {split.name: split for split in source.splits}
    train, test = splits["train"], splits["test"]
    twins, shared = _twins(train, test)
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


def _twins(train: SourceSplit, test: SourceSplit) -> tuple[dict[int, int], int]:
    """Each training record whose image is a test record's, with the first such; how many test records that concerns."""
    first = len(train)

    def read(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        parts = [train.read(positions[positions < first]), test.read(positions[positions >= first] - first)]
        return np.concatenate([part["image"] for part in parts])  # positions come ascending

    twins: dict[int, int] = {}
    shared = 0
    for group in same_images(np.concatenate([split_crcs(train), split_crcs(test)]), read):
        in_train = [position for position in group if position < first]
        in_test = [position - first for position in group if position >= first]
        if in_train and in_test:
            twins |= dict.fromkeys(in_train, in_test[0])
            shared += len(in_test)
    return twins, shared
