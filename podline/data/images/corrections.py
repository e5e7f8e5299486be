"""Applies reviews to the images of a source: relabels images or leaves them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from podline.data.images.image_table import ImageTable
from podline.plurals import plural

DROP = ""
"""The correction that drops an image; every other correction is its new label."""
_DROPPED, _RELABELLED = "dropped by a review", "relabelled by a review"


class Corrected(NamedTuple):
    """The effect of reviews.

    Attributes:
        counts: number of images that reviews relabelled or dropped, by description.
        lost: number of corrections that match no image.
    """

    counts: Mapping[str, int]
    lost: int

    def lines(self) -> list[str]:
        """Return a log line if some corrections match no image of the source with these settings."""
        if not self.lost:
            return []
        return [f"{plural(self.lost, 'correction')} of reviews match no image; the images or the side have changed"]


def correct(images: ImageTable, corrections: Mapping[str, str]) -> Corrected:
    """Apply corrections to the images that have no problem.

    Args:
        images: the images.
        corrections: sha256 of an image's pixels → its new label, or :data:`DROP`.
    """
    digests = images.column("pixels_sha256") if corrections else np.empty(0, "S1")
    wanted = {bytes.fromhex(image): label for image, label in corrections.items()}
    found = np.flatnonzero(np.isin(digests, np.array([*wanted], digests.dtype)))
    whole, counts, labels, seen = images.is_whole(), Counter[str](), dict[int, str](), set[bytes]()
    for number in found.tolist():
        image = digests[number : number + 1].tobytes()
        seen.add(image)
        label = wanted[image]
        if not whole[number] or label == images.labels.at(number):
            continue
        if label == DROP:
            images.leave_out(number, _DROPPED)
        else:
            labels[number] = label
        counts[_RELABELLED if label else _DROPPED] += 1
    images.labels = images.labels.changed(labels)
    return Corrected(dict(sorted(counts.items())), len(corrections) - len(seen))
