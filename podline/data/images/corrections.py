"""Apply reviews of labels to the images of a source: relabel images or leave them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from podline.base.plurals import plural
from podline.data.identity import IDENTITY_BYTES
from podline.data.images.image_table import ImageTable
from podline.data.reasons import DROPPED, Reason

DROP = ""
"""The correction that leaves an image out; any other correction is the new label."""
_RELABELLED = "relabelled by a review"


class Corrected(NamedTuple):
    """The effect of label reviews.

    Attributes:
        counts: number of images that reviews relabelled or left out, by description.
        lost: number of corrections whose image is not in the source.
    """

    counts: Mapping[str, int]
    lost: int

    def lines(self) -> list[str]:
        """Return a log line if some corrections match no image of the source, else nothing."""
        if not self.lost:
            return []
        return [f"{plural(self.lost, 'correction')} from reviews match no image of this source"]


NO_CORRECTIONS = Corrected({}, 0)


def correct(images: ImageTable, corrections: Mapping[str, str]) -> Corrected:
    """Apply corrections to the images without a problem, and to images with the same pixels.

    Args:
        images: all images of the source; their labels and reasons are changed in place.
        corrections: identity of an image → new label, or :data:`DROP`. Reviews of Podline 1.0 identify an image by the
            sha256 of its pixels.
    """
    if not corrections:
        return NO_CORRECTIONS
    known = {bytes.fromhex(image)[:IDENTITY_BYTES]: image for image in corrections}
    wanted, seen = dict[int, str](), set[str]()
    for name in ("pixels", "identity"):
        for number, digest in _having(images, name, known):
            wanted[number] = corrections[known[digest]]
            seen.add(known[digest])
    pixels = images.column("pixels")
    of_pixels = {pixels[number : number + 1].tobytes(): label for number, label in wanted.items() if pixels[number]}
    for number, digest in _having(images, "pixels", of_pixels):
        wanted.setdefault(number, of_pixels[digest])
    whole, labels, counts = images.is_whole(), dict[int, str](), Counter[str]()
    for number, label in sorted(wanted.items()):
        if not whole[number] or label == images.labels.at(number):
            continue
        if label == DROP:
            images.leave_out(number, Reason(DROPPED))
        else:
            labels[number] = label
        counts[_RELABELLED if label else DROPPED] += 1
    images.labels = images.labels.changed(labels)
    return Corrected(dict(sorted(counts.items())), len(corrections) - len(seen))


def _having(images: ImageTable, name: str, digests: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield number and digest of each image whose digest in a column is one of ``digests``."""
    column = images.column(name)
    for number in np.flatnonzero(np.isin(column, np.array([*digests], column.dtype))).tolist():
        yield number, column[number : number + 1].tobytes()
