"""What an open shard can do, whether its records hold pixels or JPEG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from podline.data.kept_jpegs import KeptLayout, KeptShard
from podline.data.pixel_shard import PixelShard
from podline.data.records import RecordLayout
from podline.data.tfrecord import Bytes
from podline.documents.manifest import FieldInfo


class Shard(Protocol):
    """A shard's records, by their places in it; any number of threads may read.

    Each record's CRC-32C, which is part of the TFRecord format, is checked when the record is read first.
    """

    def __len__(self) -> int:
        """Return how many records there are."""
        ...

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        ...

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, each one element of :func:`podline.data.records.elements`.

        Args:
            places: int64, (n,).
            fields: which values.

        Returns:
            For each field, (n,).

        Raises:
            ArtifactError: a record is damaged; it is named.
        """
        ...

    def frames(self, start: int, stop: int) -> Bytes:
        """Return records start … stop-1 as frames with pixels, each checked.

        Raises:
            ArtifactError: a record is damaged; it is named.
        """
        ...


def open_shard(path: Path, layout: RecordLayout | KeptLayout, records: int) -> Shard:
    """Open a shard's file.

    Args:
        path: the file.
        layout: of its records as they are in the file.
        records: how many it must hold.

    Raises:
        ArtifactError: it is gone, or holds something else.
        StoreError: it cannot be read.
    """
    if isinstance(layout, KeptLayout):
        return KeptShard(path, layout, records)
    return PixelShard(path, layout, records)
