"""Images that a data set has more than once: kept out of training where the test split has them, counted elsewhere.

Two images are the same when every pixel is. Each is represented by its sha256, so what is compared is small, and memory
is flat: the pixels are read in chunks. Most images are told apart by a CRC-32C of their bytes, which costs a tenth.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from podline.data.content import image_crcs
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


def split_crcs(split: SourceSplit) -> npt.NDArray[np.uint32]:
    """The CRC-32C of each record's image as it is stored, in the split's order; the raw files are read through once."""
    size = math.prod(split.image_shape)
    crcs = np.concatenate([image_crcs(images) for block in split.blocks for images in block.scan(size)])
    return crcs if split.kept is None else crcs[split.kept]


def split_digests(split: SourceSplit, records: npt.NDArray[np.int64] | None = None) -> Digests:
    """The sha256 of the images of some records, or of all in the split's order."""
    wanted = np.arange(len(split)) if records is None else records
    chunks = [wanted[first : first + _CHUNK] for first in range(0, len(wanted), _CHUNK)]
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
    train_crcs, test_crcs = split_crcs(train), split_crcs(test)
    train_places = np.flatnonzero(np.isin(train_crcs, test_crcs))
    test_places = np.flatnonzero(np.isin(test_crcs, train_crcs))
    train_digests, test_digests = split_digests(train, train_places), split_digests(test, test_places)
    same = np.isin(train_digests, test_digests)
    left_out, digests = train_places[same].tolist(), train_digests[same].tolist()
    if not left_out:
        return source
    shared = np.isin(test_digests, train_digests)
    # Of several test records with one image, the first is named.
    twins = dict(zip(test_digests[shared][::-1].tolist(), test_places[shared][::-1].tolist(), strict=True))
    if shared.sum() > MAX_SHARED * len(test):
        raise SourceError(
            f"{source.dataset}: {shared.sum():,} of the {len(test):,} test images are training images as well "
            f"({train.record_name(left_out[0])} and {test.record_name(twins[digests[0]])} are the first) vs "
            f"{MAX_SHARED:.0%} at most: the evaluation would lie inside the training set; get splits that are apart"
        )
    found = tuple(
        Quarantined(
            split=train.name,
            record=train.record_name(index),
            reason=f"the same image as {test.record_name(twins[digest])} of the test split",
        )
        for index, digest in zip(left_out, digests, strict=True)
    )
    places = np.arange(len(train)) if train.kept is None else train.kept
    apart = replace(train, kept=np.delete(places, left_out))
    return replace(
        source,
        splits=tuple(apart if split is train else split for split in source.splits),
        quarantined=source.quarantined + found,
    )
