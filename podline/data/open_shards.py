"""An open shard: each field is a column, indexed by the records' positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podline.data.kept_jpegs import KeptLayout, KeptShard, stored_layout
from podline.data.records import elements, place_of
from podline.data.tfrecord import Bytes, map_frames
from podline.documents.manifest import FieldInfo, Manifest, ShardInfo


@dataclass(frozen=True)
class MappedShard:
    """A shard whose records have one length."""

    frames: Bytes

    def __len__(self) -> int:
        return len(self.frames)

    def start(self, place: int) -> int:
        """The byte at which a record's frame starts."""
        return place * self.frames.shape[1]

    def column(self, field: FieldInfo) -> np.ndarray:
        """A field's values, one element a record, (records,); a view."""
        return elements(field, self.frames[:, place_of(field)])


def open_shard(path: Path, manifest: Manifest, shard: ShardInfo) -> MappedShard | KeptShard:
    """A shard of a data set.

    Raises:
        ArtifactError: it is gone, or has another size than the manifest says.
        StoreError: it cannot be read.
    """
    layout = stored_layout(manifest.fields)
    if isinstance(layout, KeptLayout):
        return KeptShard(path, layout, shard.records)
    return MappedShard(map_frames(path, manifest.record_length, shard.records))
