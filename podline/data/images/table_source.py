"""Images that a table lists, with a target each: the source of classes and other targets that have a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from podline.arrays import Array
from podline.data.decoded_rows import SourceSplit
from podline.data.images.corrections import DROPPED
from podline.data.images.deciding import in_general
from podline.data.images.image_table import ImageTable
from podline.data.official import check_official
from podline.data.planning import ShardPlan, ShardPlans, shard_order
from podline.data.rawfiles import RawFile
from podline.data.records import IMAGE, Feature, label_feature
from podline.data.shards import RowsByPlace, tables_of_places
from podline.data.shown import printable
from podline.data.sources.decoding import FORGOTTEN
from podline.data.sources.left_out import LeftOut
from podline.data.sources.source import RawData, Remarks, ShardTables
from podline.documents.manifest import Quarantined
from podline.errors import SourceError
from podline.kinds.contract import TextTargets
from podline.kinds.table import text_targets


@dataclass(frozen=True, kw_only=True)
class TableSource(RawData):
    """A source of images that a table lists.

    Attributes:
        images: all images, including those that are left out.
        splits: the existing splits, in the order of :data:`podline.documents.manifest.SPLITS`.
        others: class names of further label features (``coarse_label`` of CIFAR-100).
        raw: the raw files, unpacked, by official name.
        archive: the archive of these files, with its official name.
        contradicting: split → number of records whose image another record has with another label.
    """

    images: ImageTable
    splits: tuple[SourceSplit, ...]
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    raw: tuple[RawFile, ...] = ()
    archive: RawFile | None = None
    contradicting: Mapping[str, int] = field(default_factory=dict)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record: the image, then the targets."""
        return (
            Feature(IMAGE, "uint8", self.splits[0].image_shape),
            *text_targets(self.kind).fields(self.class_names),
            *(label_feature(name, names) for name, names in self.others.items()),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of records to convert, by split."""
        return {split.name: len(split) for split in self.splits}

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The images of each split and how many are left out, not counting stray files."""
        meant = ~self.images.column("stray")
        parts = {
            split: LeftOut(f"images of the {split} split", int((meant & self.images.of_split(split)).sum()))
            for split in self.sizes
        }
        for number, reason in self.images.reasons.items():
            if in_general(reason) not in (FORGOTTEN, DROPPED):  # people left these out on purpose
                parts[self.images.split_of(number)].add(in_general(reason), int(meant[number]))
        return tuple(parts.values())

    def remarks(self) -> Remarks:
        """Return how the raw files compare with the published ones, and the contradicting records."""
        return Remarks(check_official(self.dataset, self.raw, self.archive), self.contradicting)

    def names(self, seed: int, /) -> Mapping[str, Any]:
        """See :meth:`RawData.names`."""
        found = dict[str, Any]()
        for split in self.sizes:
            numbers = np.flatnonzero(self.images.kept(split))
            order = shard_order(seed, ShardPlan(split, "", 0, len(numbers)), len(numbers))
            found[split] = self.images.names(numbers[order])
        return found

    def shard_tables(self, _plans: ShardPlans, seed: int | None, folder: Path, /) -> ShardTables:
        """See :meth:`RawData.shard_tables`; without a seed, records keep the order of the splits."""
        first = self.splits[0]
        return RowsByPlace(first.pixels, first.image_shape, seed), tables_of_places(self.splits, folder)


def quarantined(images: ImageTable) -> tuple[Quarantined, ...]:
    """Return the images that are left out, with the reasons."""
    return tuple(
        Quarantined(split=images.split_of(at), record=printable(key, 1_000), reason=reason)
        for (at, reason), key in zip(images.reasons.items(), images.keys(images.reasons), strict=True)
    )


def targets_by_row(images: ImageTable, targets: TextTargets, names: Sequence[str], rows: int) -> dict[str, Array]:
    """Return the targets of each decoded image, by row; only those of kept images are used."""
    kept, row, found = images.kept(), images.column("row"), dict[str, Array]()
    texts = sorted(images.labels.of(kept))
    places = {text: place for place, text in enumerate(texts)}
    of_codes = np.array([places.get(text, -1) for text in images.labels.values], np.int64)
    for name, values in targets.arrays(texts, names).items():
        found[name] = np.zeros((rows, *values.shape[1:]), values.dtype)
        found[name][row[kept]] = values[of_codes[images.labels.codes[kept]]]
    return found


def refuse_empty(place: str, images: ImageTable, splits: Iterable[str], remedy: str = "") -> None:
    """Check that each split has an image.

    Raises:
        SourceError: a split has no image; the message has the most frequent reason.
    """
    for split in splits:
        if not images.kept(split).any():
            raise SourceError(f"{place}: the {split} split has no image vs 1 at least{remedy}{most_left_out(images)}")


def most_left_out(images: ImageTable) -> str:
    """Return the most frequent reason for leaving images out, as the end of an error."""
    if not images.reasons:
        return ""
    ((reason, _count),) = Counter(images.reasons.values()).most_common(1)
    number = next(number for number, other in images.reasons.items() if other == reason)
    [key] = images.keys([number])
    return f"; {len(images.reasons):,} of {len(images):,} files are left out: {printable(key)} {reason}"
