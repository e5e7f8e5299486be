"""Plans shards: divides the records of each split among shard files, by the size and the wanted number of shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from podline.base.errors import SettingsError, SourceError

# Below this size, opening a file costs more than reading it (1 MB).
SMALL_SHARD_BYTES = 1_000_000


@dataclass(frozen=True)
class ShardPlan:
    """The plan of one shard file, with records ``first`` … ``first + records - 1`` in the order of the split."""

    split: str
    file: str
    first: int
    records: int


class SplitPlan(NamedTuple):
    """A split's name, number of records and number of shards."""

    name: str
    records: int
    shards: int


@dataclass(frozen=True)
class ShardPlans:
    """All shards of a data set, each computed on access; file names start with ``dataset``."""

    dataset: str
    splits: tuple[SplitPlan, ...]

    def __len__(self) -> int:
        return sum(split.shards for split in self.splits)

    def __iter__(self) -> Iterator[ShardPlan]:
        return (self._plan(split, index) for split in self.splits for index in range(split.shards))

    def __getitem__(self, number: int) -> ShardPlan:
        for split in self.splits:
            if number < split.shards:
                return self._plan(split, number)
            number -= split.shards
        raise IndexError(f"shard number out of range: there are {len(self)} shards")

    def _plan(self, split: SplitPlan, index: int) -> ShardPlan:
        """Return a shard of a split; sizes differ by at most one record, and no shard is empty."""
        first, end = (split.records * edge // split.shards for edge in (index, index + 1))
        digits = max(5, len(str(split.shards)))  # as in TFDS; sorted names have the order of the shard numbers
        file = f"{self.dataset}-{split.name}.tfrecord-{index:0{digits}d}-of-{split.shards:0{digits}d}"
        return ShardPlan(split.name, file, first, end - first)


def shard_count(records: int, frame_length: int, shard_bytes: int, min_shards: int) -> int:
    """Return the number of shards for a split.

    It is the smallest number that ``shard_bytes`` allows, but up to ``min_shards`` as long as shards have 1 MB or more,
    so that each host and worker reads its own shards.

    Raises:
        SettingsError: not even one record fits into ``shard_bytes``.
    """
    fitting = shard_bytes // frame_length
    if fitting == 0:
        raise SettingsError(
            f"shard_bytes={shard_bytes} is less than the {frame_length} bytes of a record; raise shard_bytes"
        )
    needed = -(-records // fitting)
    worthwhile = records // -(-SMALL_SHARD_BYTES // frame_length)
    return max(needed, min(min_shards, worthwhile), 1)


def plan_shards(
    dataset: str, splits: Mapping[str, int], frame_length: int, *, shard_bytes: int, min_shards: int
) -> ShardPlans:
    """Plan the shards of a data set; ``dataset`` begins each file name; see :func:`shard_count`.

    Raises:
        SourceError: a split has no records.
        SettingsError: not even one record fits into ``shard_bytes``.
    """
    for split, records in splits.items():
        if records < 1:
            raise SourceError(f"{dataset}: the split {split!r} has no records to convert; check the source")
    counted = (
        SplitPlan(split, records, shard_count(records, frame_length, shard_bytes, min_shards))
        for split, records in splits.items()
    )
    return ShardPlans(dataset, tuple(counted))
