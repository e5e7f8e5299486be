"""Applies reviews to the images of a source: relabels images or leaves them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from podline.data.images.column_file import DIGEST, TEXT, array, compute, encoded
from podline.data.images.image_table import ImageTable
from podline.plurals import plural

DROP = ""
"""The correction that drops an image; every other correction is its new label."""
_DROPPED, _RELABELLED = "dropped by a review", "relabelled by a review"


class CorrectedTable(ImageTable):
    """The images of a source, with the corrections of reviews applied.

    Args:
        path: path of the uncorrected images.
        corrections: sha256 of an image's pixels → its new label, or :data:`DROP`.

    Attributes:
        counts: number of images that reviews relabelled or dropped, by description.
        lost: number of corrections that match no image.
    """

    def __init__(self, path: Path, corrections: Mapping[str, str]) -> None:
        super().__init__(path)
        self._changes: dict[str, dict[int, bytes]] = {"label": {}, "reason": {}}
        wanted, seen = {bytes.fromhex(image): label for image, label in corrections.items()}, set[bytes]()
        counts, digests = Counter[str](), pa.array([*wanted], DIGEST)
        for first, batch in super().batches("label", "reason", "pixels_sha256"):
            for at in np.flatnonzero(array(compute.is_in(batch["pixels_sha256"], digests))).tolist():
                pixels = batch["pixels_sha256"][at].as_py()
                seen.add(pixels)
                label = encoded(wanted[pixels])
                if batch["reason"][at].as_py() or label == batch["label"][at].as_py():
                    continue
                name, change, what = ("label", label, _RELABELLED) if label else ("reason", _DROPPED.encode(), _DROPPED)
                self._changes[name][first + at] = change
                counts[what] += 1
        self.counts, self.lost = dict(sorted(counts.items())), len(corrections) - len(seen)

    def batches(self, *names: str, only: Iterable[int] | None = None) -> Iterator[tuple[int, Any]]:
        """See :meth:`ColumnFile.batches`."""
        for first, stored in super().batches(*names, only=only):
            batch = stored
            for name in self._changes.keys() & {*names}:
                mine = [number for number in range(first, first + len(batch)) if number in self._changes[name]]
                if mine:
                    mask = np.zeros(len(batch), np.bool_)
                    mask[np.array(mine) - first] = True
                    values = pa.array([self._changes[name][number] for number in mine], TEXT)
                    changed = compute.replace_with_mask(batch[name], mask, values)
                    batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), changed)
            yield first, batch

    def lines(self) -> list[str]:
        """Return a log line if some corrections match no image of the source with these settings."""
        if not self.lost:
            return []
        return [f"{plural(self.lost, 'correction')} of reviews match no image; the images or the side have changed"]
