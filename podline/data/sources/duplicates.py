"""Images that a data set has more than once: kept out of training where the test split has them, counted elsewhere.

Two images are the same when every pixel is. Each is represented by its sha256, so what is compared is small, and memory
is flat: the pixels are read in chunks.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from podline.data.manifest import Quarantined
from podline.data.sources.source import Source, SourceSplit
from podline.errors import SourceError

Digests = npt.NDArray[np.bytes_]

# A test split of which more than this share can also be trained on says nothing about new images.
MAX_SHARED = 0.01
_CHUNK = 2048


def image_digests(images: npt.NDArray[np.uint8]) -> Digests:
    """The sha256 of each image's pixels.

    Args:
        images: uint8, (count, height, width, channels).

    Returns:
        ``S32``, (count,).
    """
    pixels, size = images.tobytes(), math.prod(images.shape[1:])
    rows = (pixels[first : first + size] for first in range(0, len(pixels), size))
    return np.frombuffer(b"".join(hashlib.sha256(row).digest() for row in rows), "S32")


def split_digests(split: SourceSplit) -> Digests:
    """The sha256 of each record's image, in the split's order."""
    chunks = [np.arange(first, min(first + _CHUNK, len(split))) for first in range(0, len(split), _CHUNK)]
    return np.concatenate([np.empty(0, "S32"), *(image_digests(split.read(chunk)["image"]) for chunk in chunks)])


def count_repeated(digests: Digests) -> int:
    """Records whose image another record has as well."""
    _values, counts = np.unique(digests, return_counts=True)
    return int(counts[counts > 1].sum())


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
    train_digests, test_digests = split_digests(train), split_digests(test)
    in_test = np.isin(train_digests, test_digests)
    if not in_test.any():
        return source
    shared = np.flatnonzero(np.isin(test_digests, train_digests))
    if len(shared) > MAX_SHARED * len(test):
        first = int(np.flatnonzero(in_test)[0])
        twin = int(np.flatnonzero(test_digests == train_digests[first])[0])
        raise SourceError(
            f"{source.dataset}: {len(shared):,} of the {len(test):,} test images are training images as well "
            f"({train.record_name(first)} and {test.record_name(twin)} are the first) vs {MAX_SHARED:.0%} at most: "
            f"the evaluation would lie inside the training set; get splits that are apart"
        )
    twins = {digest: int(place) for place, digest in zip(shared[::-1], test_digests[shared[::-1]], strict=True)}
    found = tuple(
        Quarantined(
            split=train.name,
            record=train.record_name(index),
            reason=f"the same image as {test.record_name(twins[train_digests[index]])} of the test split",
        )
        for index in np.flatnonzero(in_test).tolist()
    )
    places = np.arange(len(train)) if train.kept is None else train.kept
    apart = replace(train, kept=places[~in_test])
    return replace(
        source,
        splits=tuple(apart if split is train else split for split in source.splits),
        quarantined=source.quarantined + found,
    )
