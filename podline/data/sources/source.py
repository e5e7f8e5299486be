"""An opened source: a table of images with targets, and the methods that a conversion calls.

The planner opens a source once. Workers read the decoded images by position, so pixels are not sent, and a worker's
memory holds one shard.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.base.frozen import JsonObject
from podline.data.decoded_rows import DecodedRows
from podline.data.fitting import SQUEEZE
from podline.data.identity import IDENTITY_BYTES
from podline.data.images.arrow_file import encoded
from podline.data.images.corrections import NO_CORRECTIONS, Corrected
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.near import NearPair, near_counts, near_lines, near_pairs, refuse_near
from podline.data.images.settings import PictureSettings
from podline.data.jpeg_files import SAMPLED, mean_size
from podline.data.order import shuffled
from podline.data.planning import ShardPlans
from podline.data.rawfiles import reading
from podline.data.record_table import Records
from podline.data.records import IMAGE
from podline.data.shards import RowsByPlace, SourceSplit, tables_of_places
from podline.data.shown import printable
from podline.data.sources.left_out import LeftOut
from podline.documents.feature import Feature
from podline.documents.manifest import TEST, FileInfo, Quarantined, SourceFile
from podline.documents.skeleton import Skeleton
from podline.recipes.datasets import ConverterSettings, DataSet
from podline.recipes.kind_table import facts_named
from podline.recipes.official import OfficialCheck
from podline.recipes.targets import Doubt, TextTargets
from podline.store.contract import Store


@dataclass(frozen=True, kw_only=True)
class Source:
    """An opened source: images, targets, and the methods with which workers write records.

    Attributes:
        dataset: the data set's name.
        kind: kind of task; see :mod:`podline.recipes.kind_table`.
        files: every raw file of the records, with its checksum.
        images: all images, including those that are left out.
        splits: the splits that exist, with their records, in the order of :data:`podline.documents.manifest.SPLITS`.
        targets: the features of a record beside the image.
        class_names: names by class number; empty if the kind has no classes.
        settings: settings of the conversion of the user's own images; None for raw arrays, which a seed shuffles.
        skeleton: the joints, if the targets are poses; None if the target of an image is a text or a number.
        words: lines that describe the source.
        facts: see :attr:`podline.documents.manifest.Manifest.facts`.
        corrected: the changes that reviews made.
        rules: rule for annotations → how often it was applied to converted records.
        parts: counts of left-out records that are not images, such as annotations.
        official: comparison of the raw files with the published files; None for unpublished data.
        contradicting: split → number of records whose image has another label in another record.
        warnings: lines about probable mistakes in the source.
    """

    dataset: str
    kind: str
    files: tuple[SourceFile, ...]
    images: ImageTable
    splits: tuple[SourceSplit, ...]
    targets: tuple[Feature, ...] = ()
    class_names: tuple[str, ...] = ()
    settings: PictureSettings | None
    skeleton: Skeleton | None
    words: tuple[str, ...] = ()
    facts: JsonObject = field(default_factory=dict)
    corrected: Corrected = NO_CORRECTIONS
    rules: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[LeftOut, ...] = ()
    official: OfficialCheck | None = None
    contradicting: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Return whether a new version can use the shards of an older one, so that only new records are written.

        True for the user's own images, except keypoints.
        """
        return self.settings is not None and self.skeleton is None

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record: the image, then the targets."""
        fit = SQUEEZE if self.settings and self.settings.keep_jpeg else None
        return (Feature(IMAGE, "uint8", self.splits[0].image_shape, fit=fit), *self.targets)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of records to convert, by split, ``train`` first."""
        return {split.name: len(split) for split in self.splits}

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The images that are left out, with the reasons."""
        images = self.images
        return tuple(
            Quarantined(split=images.split_of(at), record=printable(key, 1_000), reason=str(reason))
            for (at, reason), key in zip(images.reasons.items(), images.keys(images.reasons), strict=True)
        )

    @property
    def read(self) -> int:
        """Number of records in the raw files: those to convert and those left out."""
        return sum(self.sizes.values()) + len(self.images.reasons)

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Counts of left-out images of each split, then :attr:`parts`; without stray files and deliberate removals."""
        meant = ~self.images.column("stray")
        parts = {
            split: LeftOut(f"images of the {split} split", int((meant & self.images.of_split(split)).sum()))
            for split in self.sizes
        }
        for number, reason in self.images.reasons.items():
            if not reason.is_wanted:
                parts[self.images.split_of(number)].add(reason.kind, int(meant[number]))
        return (*parts.values(), *self.parts)

    @property
    def counted(self) -> dict[str, int]:
        """Counts by name: images that EXIF or reviews changed, near-duplicates, warnings, annotations by rule."""
        counts = {**self.corrected.counts, **near_counts(self.near), **dict.fromkeys(self.warnings, 1), **self.rules}
        counts |= {"turned as EXIF says": self.images.turned} if self.images.turned else {}
        return dict(sorted(counts.items()))

    @cached_property
    def near(self) -> tuple[NearPair, ...]:
        """Near-duplicates in different splits, nearest first; empty without a search if the settings allow all."""
        if self.settings is None or self.settings.near_share == 1:
            return ()
        return near_pairs(self.images, self.pixels, self.settings)

    @property
    def near_lines(self) -> list[str]:
        """One line per pair of splits with the number of near-duplicates."""
        return near_lines(self.near, self.sizes)

    def pixels(self, rows: Numbers) -> npt.NDArray[np.uint8]:
        """Return decoded images by row: uint8, (n, height, width, channels)."""
        return self.splits[0].pixels_of(rows)

    @property
    def bytes_of_a_file(self) -> int:
        """Mean bytes of the image file in a record, estimated from some records; 0 if records store pixels."""
        some = self.splits[0].kept[:SAMPLED]
        return mean_size(self.pixels(some)) if self.settings and self.settings.keep_jpeg else 0

    def notes(self) -> list[str]:
        """Return lines that tell the user how Podline interprets the source; none for raw arrays.

        Raises:
            SourceError: too many images of a split have a near-duplicate in another split.
        """
        if self.settings is None:
            return []
        refuse_near(self.near, self.sizes, self.settings.near_share)
        doubt = [self.doubt.words] if self.doubt else []
        return [*self.words, *doubt, *self.corrected.lines(), *self.near_lines]

    @cached_property
    def class_counts(self) -> dict[str, list[int]]:
        """Number of images of each class, by split."""
        census = facts_named(self.kind).targets.census
        return {
            split.name: census(
                {name: values[split.kept] for name, values in split.targets.items()}, len(self.class_names)
            ).tolist()
            for split in self.splits
        }

    @cached_property
    def doubt(self) -> Doubt | None:
        """Return why the test split cannot or can hardly show that a model is better than guessing; None if it can."""
        counts = self.class_counts
        every = [sum(each) for each in zip(*counts.values(), strict=True)]
        return facts_named(self.kind).targets.doubt(self.class_names, counts[TEST], every, is_hashed=True)

    def in_order(self, seed: int) -> Source:
        """Return the source with the records of each split in the order of the shards.

        The seed shuffles raw arrays. The user's own images stay sorted by identity for every seed: identities are
        hashes, so this order is as good as a random one.
        """
        if self.settings is not None:
            return self
        return self.part(
            {
                split.name: shuffled(seed, f"shards/{split.name}", len(split), np.arange(len(split)))
                for split in self.splits
            }
        )

    def part(self, records: Mapping[str, Numbers]) -> Source:
        """Return the source with only some records: split → positions; empty splits are removed."""
        some = (split.some(records[split.name]) for split in self.splits)
        return replace(self, splits=tuple(split for split in some if len(split)))

    def identities(self) -> dict[str, Records]:
        """Return the identities and targets of each split's records, in order."""
        found = dict[str, Records]()
        for split in self.splits:
            keys, pixels = (self.images.column(name)[split.numbers] for name in ("identity", "pixels"))
            texts, targets = self.targets_of(split)
            known = np.concatenate([_bytes(column) for column in (pixels, *targets)], axis=1)
            digests = [hashlib.sha256(row).digest()[:IDENTITY_BYTES] for row in known]
            found[split.name] = Records.of(keys, np.array(digests, f"S{IDENTITY_BYTES}"), texts.astype(object))
        return found

    def targets_of(self, split: SourceSplit) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Return the targets of a split's records as encoded text, and as the feature columns that are hashed."""
        labels = self.images.labels
        texts = np.array([*map(encoded, labels.values), b""], object)[labels.codes[split.numbers]]
        return texts, [np.ascontiguousarray(values[split.kept]) for values in split.targets.values()]

    def names(self) -> Mapping[str, Any]:
        """Return the names of each split's records; see :func:`podline.data.versions.record_names.publish_names`."""
        return {split.name: self.images.names(split.numbers) for split in self.splits}

    def shard_tables(self, _plans: ShardPlans, folder: Path, /) -> tuple[RowsByPlace, Iterator[Path]]:
        """Return the object with which workers fill the records of shards, and the paths of the tables that it reads.

        Args:
            _plans: the shards.
            folder: an existing folder for the tables; each is written when the iterator reaches it.

        Raises:
            StoreError: the folder cannot be written.
        """
        first = self.splits[0]
        return RowsByPlace(first.pixels, first.image_shape), tables_of_places(self.splits, folder)

    def publish_truths(self, _store: Store, _folder: str, /) -> dict[str, FileInfo]:
        """Write each split's annotations of people into the data set's folder; return split → file.

        Raises:
            StoreError: the store cannot be written.
        """
        return {}


def splits_of(
    images: ImageTable,
    numbers: Mapping[str, Numbers],
    pixels: DecodedRows,
    shape: tuple[int, int, int],
    targets: TextTargets | None,
    class_names: Sequence[str],
    others: Mapping[str, npt.NDArray[Any]],
) -> tuple[SourceSplit, ...]:
    """Return the splits of a source.

    Args:
        images: all images.
        numbers: split → numbers of the split's images in ``images``, in the order of the records.
        pixels: the decoded images.
        shape: (height, width, channels) of each decoded image.
        targets: converts the images' labels to feature values; None if ``others`` has all features.
        class_names: names by class number.
        others: further features: name → values, (rows, …).
    """
    by_row, row = {**others}, images.column("row")
    if targets:
        kept = images.kept()
        texts = sorted(images.labels.of(kept))
        places = {text: place for place, text in enumerate(texts)}
        of_codes = np.array([places.get(text, -1) for text in images.labels.values], np.int64)
        for name, values in targets.arrays(texts, class_names).items():
            by_row[name] = np.zeros((pixels.count, *values.shape[1:]), values.dtype)
            by_row[name][row[kept]] = values[of_codes[images.labels.codes[kept]]]
    return tuple(SourceSplit(split, shape, pixels, by_row, some, row[some]) for split, some in numbers.items())


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of each row, (n, bytes)."""
    return values.view(np.uint8).reshape(len(values), math.prod(values.shape[1:]) * values.dtype.itemsize)


def open_raw(dataset: DataSet, source: str, settings: ConverterSettings, work: Path) -> Source:
    """Open a data set's raw data.

    Args:
        dataset: the data set.
        source: the user's folder, file or ``gs://`` prefix.
        settings: the data set's settings.
        work: the cache folder of sources.

    Raises:
        SettingsError: the data set's code cannot be imported, or the settings do not fit.
        SourceError: the source is missing, damaged or another data set.
        StoreError: the cache folder cannot be written, or a bucket cannot be read.
        OutOfMemoryError: the memory is too small.
    """
    read = dataset.code(dataset.open)
    with reading(source, dataset.name, remedy=""):
        return read(dataset, source, settings, work)
