"""Opens a user's images as a source; docs/how-to/images.md describes layouts and exclusions.

Every image is decoded once into the cache folder, in reading order. Records are ordered by the identity of the
images, so that the same images give the same records in any layout.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from podline import settings as machine
from podline.data.decoded_rows import SourceSplit
from podline.data.decoders import pixels_digest
from podline.data.fitting import SQUEEZE
from podline.data.identity import IDENTITY_BYTES, hexadecimal
from podline.data.images.columns import with_whole_numbers
from podline.data.images.corrections import Corrected, correct
from podline.data.images.deciding import decide
from podline.data.images.decoded import decode_images
from podline.data.images.hashing import HASHED
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.items import held_out_splits, unread_splits
from podline.data.images.layout import NOTES
from podline.data.images.listing import source_files
from podline.data.images.near import NearPair, near_counts, near_lines, near_pairs, refuse_near
from podline.data.images.parsing import parsed
from podline.data.images.settings import ImagesSettings, PictureSettings
from podline.data.images.table_source import TableSource, most_left_out, quarantined, refuse_empty, targets_by_row
from podline.data.jpeg_files import SAMPLED, mean_size
from podline.data.planning import ShardPlans
from podline.data.record_table import Records
from podline.data.records import IMAGE, Feature
from podline.data.shown import shortened
from podline.data.sources.class_names import alike
from podline.data.sources.remote import is_remote, on_this_machine
from podline.data.sources.source import Remarks, ShardTables
from podline.documents.manifest import SPLITS, TEST, TRAIN, VALIDATION, SourceFile
from podline.errors import SettingsError, SourceError
from podline.kinds.contract import Doubt
from podline.kinds.table import kind_named
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store import digests
from podline.store.folder import FolderStore

_FILES_OF = (TEST, TRAIN, VALIDATION)  # the order of splits in the list of all images
_FORM = "rows of pixels and facts"  # version of the files in the cache folder
_NAMED = 3
_MORE_IMAGES = "give more images, or another share of them to test on (conversion.test_share)"


@dataclass(frozen=True, kw_only=True)
class ImagesSource(TableSource):
    """A source of the user's own images.

    Attributes:
        corrected: the effect of reviews.
        words: a description of the source.
        settings: the form of the images.
        grows: whether a conversion extends an older version, and writes only new records.
    """

    grows: ClassVar[bool] = True

    corrected: Corrected
    words: tuple[str, ...] = ()
    settings: PictureSettings

    @cached_property
    def near(self) -> tuple[NearPair, ...]:
        """Near-duplicates across the splits, nearest first; none are searched if all are allowed."""
        if self.settings.near_share == 1:
            return ()
        known, rows = np.zeros(self.splits[0].pixels.count, HASHED), self.images.column("row")
        for name in HASHED.names or ():
            known[name][rows[rows >= 0]] = self.images.column(name)[rows >= 0]
        return near_pairs(self.images, self.pixels, self.settings, len(known), [known])

    def pixels(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return decoded images by row: uint8, (n, side, side, channels)."""
        first = self.splits[0]
        return first.pixels.read(rows, math.prod(first.image_shape)).reshape(-1, *first.image_shape)

    @property
    def usual_side(self) -> int:
        """The median of the images' longer sides, in pixels."""
        return _usual_side(self.images)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; see :class:`podline.data.records.Feature`."""
        _, *labels = super().features
        return (self.image_feature, *labels)

    @property
    def image_feature(self) -> Feature:
        """The feature of the image."""
        return Feature(IMAGE, "uint8", self.settings.shape, fit=SQUEEZE if self.settings.keep_jpeg else None)

    @property
    def bytes_of_a_file(self) -> int:
        """Return the mean size, rounded up, of an image file in a record."""
        some = self.splits[0].kept[:SAMPLED]
        return mean_size(self.pixels(some)) if self.settings.keep_jpeg else 0

    @property
    def counted(self) -> dict[str, int]:
        """Numbers of turned images, of images that reviews corrected, and of images with near-duplicates."""
        turned = _turned(self.images)
        counts = {"turned as EXIF says": turned} if turned else {}
        return {**counts, **self.corrected.counts, **near_counts(self.near), **self.warnings}

    @property
    def warnings(self) -> dict[str, int]:
        """Return lines on what is probably not meant, and how many images each concerns."""
        return {}

    def remarks(self) -> Remarks:
        """Return how the source was understood.

        Raises:
            SourceError: too many images of a split have a near-duplicate in another split.
        """
        refuse_near(self.near, self.sizes, self.settings.near_share)
        doubt = [self.doubt.words] if self.doubt else []
        return Remarks(
            notes=(*self.words, *doubt, *self.corrected.lines(), *self.near_lines()), warnings=(*self.warnings,)
        )

    @cached_property
    def class_counts(self) -> dict[str, list[int]]:
        """Number of images of each class, by split."""
        census = kind_named(self.kind).targets().census
        return {
            split.name: census(
                {name: values[split.kept] for name, values in split.targets.items()}, len(self.class_names)
            ).tolist()
            for split in self.splits
        }

    @cached_property
    def doubt(self) -> Doubt | None:
        """Return what an evaluation on the test split cannot prove, or None."""
        counts = self.class_counts
        every = [sum(each) for each in zip(*counts.values(), strict=True)]
        return kind_named(self.kind).doubt(self.class_names, counts[TEST], every, is_hashed=True)

    def shard_tables(self, plans: ShardPlans, _seed: int | None, folder: Path, /) -> ShardTables:
        """See :meth:`RawData.shard_tables`.

        Records keep the order of their identities for every seed, since this order is as good as random.
        """
        return super().shard_tables(plans, None, folder)

    def identities(self) -> dict[str, Records]:
        """Return the identities of each split's records, in order."""
        return {split.name: self._identities(split) for split in self.splits}

    def _identities(self, split: SourceSplit) -> Records:
        numbers = self.images.ordered(self.images.kept(split.name))
        keys, pixels = (self.images.column(name)[numbers] for name in ("identity", "pixels"))
        targets = [np.ascontiguousarray(values[split.kept]) for values in split.targets.values()]
        known = np.concatenate([_bytes(column) for column in (pixels, *targets)], axis=1)
        digests = [hashlib.sha256(row).digest()[:IDENTITY_BYTES] for row in known]
        return Records.of(keys, np.array(digests, f"S{IDENTITY_BYTES}"))

    def names(self, _seed: int, /) -> Mapping[str, Any]:
        """See :meth:`RawData.names`."""
        return {name: self.images.names(self.images.ordered(self.images.kept(name))) for name in self.sizes}

    def part(self, records: Mapping[str, Numbers]) -> ImagesSource:
        """Return the source with only some records of its splits, without empty splits."""
        return replace(
            self,
            splits=tuple(
                replace(split, kept=split.kept[records[split.name]])
                for split in self.splits
                if len(records[split.name])
            ),
        )

    def near_lines(self) -> list[str]:
        """Return one line per pair of splits with the number of near-duplicates."""
        return near_lines(self.near, self.sizes)


def open_images(
    dataset: DataSet,
    source: str,
    settings: PictureSettings,
    work: Path,
    wanted: Callable[[str], bool] = lambda _name: True,
    inspect: Callable[[ImageTable], object] = lambda _images: None,
) -> ImagesSource:
    """Open a source of the user's own images.

    Args:
        dataset: the data set.
        source: a folder or a file.
        settings: the places of images and classes, and the form of the images.
        work: the cache folder.
        wanted: returns whether a file of a bucket is needed, by its name.
        inspect: leaves out images with invalid targets, before splits are decided.

    Raises:
        SettingsError: the settings belong to another kind of task than the data set.
        SourceError: the source has no known layout, too few classes, or a split without images.
        StoreError: the cache folder cannot be written, or a bucket cannot be read.
    """
    if settings.targets and settings.kind != dataset.kind:
        raise SettingsError(
            f"data set {dataset.name}: its settings are of the kind {settings.kind}, expected {dataset.kind}; set kind "
            f"in {dataset.settings}"
        )
    with on_this_machine(source, work, wanted) as place:
        return _opened(dataset, place, source if is_remote(source) else "", settings, work, inspect)


def _opened(
    dataset: DataSet,
    place: Path,
    uri: str,
    settings: PictureSettings,
    work: Path,
    inspect: Callable[[ImageTable], object],
) -> ImagesSource:
    source, targets = str(place), settings.targets
    becoming = [settings.model_dump(mode="json", exclude={*settings.after_decoding}), settings.near_share < 1]
    limits = machine.load().parse_limits  # higher limits may decode more images
    depends = [_FORM, dataset.base, dataset.version, becoming, pixels_digest(), limits, settings.code]
    with FolderStore(work).workspace("list") as folder:
        files, form = source_files(place, settings, folder), digests.of_json([*depends, uri or source])
        read = partial(parsed, source, files, settings, folder)
        state = digests.of_json(source if uri else files.state)  # links to a bucket's objects have a state's name
        images, pixels = decode_images(read, settings, form, state, work, folder)
    if isinstance(settings, ImagesSettings):
        images.labels = with_whole_numbers(images.labels, settings)
    corrected = correct(images, settings.corrections)
    layout, given = images.about["layout"], frozenset[str](json.loads(images.about["splits"]))
    held_out = held_out_splits(given)
    inspect(images)
    untrained = decide(images, given, settings.test_share, targets).untrained
    names = targets.class_names(images.labels.of(images.kept(TRAIN))) if targets else ()
    told = [*json.loads(images.about["facts"]).get(NOTES, ()), *alike(names, untrained)]
    if targets and len(names) < (least := targets.least_classes):
        why = "".join(f"; {line}" for line in [*told, *_untrained(untrained, given)]) or most_left_out(images)
        raise SourceError(
            f"{source}: {layout}: {plural(len(names), 'class', 'classes')} with a training image"
            f"{''.join(f', {name!r},' for name in names)} vs {least} at least{why}"
        )
    splits = [split for split in SPLITS if split != VALIDATION or VALIDATION in held_out]
    remedies = [*told, *([] if held_out else [_MORE_IMAGES])]
    refuse_empty(source, images, splits, "".join(f"; {line}" for line in remedies))
    by_row, row = targets_by_row(images, targets, names, pixels.count) if targets else {}, images.column("row")
    return ImagesSource(
        dataset=dataset.name,
        class_names=names,
        files=(_content_of(images),),
        splits=tuple(
            SourceSplit(split, settings.shape, pixels, by_row, row[images.ordered(images.kept(split))])
            for split in splits
        ),
        quarantined=quarantined(images),
        images=images,
        corrected=corrected,
        words=(*_words(layout, given, settings, images, names), *told, *_untrained(untrained, given)),
        settings=settings,
        kind=dataset.kind,
    )


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of each row, (n, bytes)."""
    return values.view(np.uint8).reshape(len(values), -1)


def _untrained(classes: Mapping[str, int], given: frozenset[str]) -> list[str]:
    """Return a line on the classes whose images are all held out, and how many these are; nothing without any."""
    if not classes:
        return []
    named = ", ".join(f"{shortened(name)} ({plural(count, 'image')})" for name, count in [*classes.items()][:_NAMED])
    more = f" and of {len(classes) - _NAMED:,} more" if len(classes) > _NAMED else ""
    place = "test or validation split" if VALIDATION in held_out_splits(given) else "test split"
    remedy = "put some of them into the training split" if held_out_splits(given) else _MORE_IMAGES
    which = "class" if len(classes) == 1 else "classes"
    return [f"all images of the {which} {named}{more} are in the {place}, so no model can learn it: {remedy}"]


def _content_of(images: ImageTable) -> SourceFile:
    """Describe all images with a class, and their splits, as one file that is the same in any layout."""
    classes, order = images.labels.values, np.array([_FILES_OF.index(split) for split in SPLITS])
    ranks = np.argsort(np.argsort(np.array(classes, object)))
    identities, sizes, codes = images.column("identity"), images.column("bytes"), images.labels.codes
    numbers = images.ordered((codes >= 0) & (identities != b""))
    numbers = numbers[np.lexsort((ranks[codes[numbers]], order[images.splits[numbers]]))]
    content = (
        (images.split_of(at), classes[codes[at]] + images.text("target", at), identity, size)
        for at, identity, size in zip(
            numbers.tolist(), hexadecimal(identities[numbers]), sizes[numbers].tolist(), strict=True
        )
    )
    return SourceFile(name="images", bytes=int(sizes[numbers].sum()), sha256=digests.of_list(content))


def _words(
    layout: str, given: frozenset[str], settings: PictureSettings, images: ImageTable, names: Sequence[str]
) -> tuple[str, ...]:
    held_out = held_out_splits(given)
    sizes = ", ".join(
        f"{np.count_nonzero(images.kept(split)):,} {split}"
        for split in SPLITS
        if split != VALIDATION or split in held_out
    )
    how = f"tested on {held_out[TEST]}" if held_out else f"{settings.test_share:.0%} to test on, by a hash"
    how += f", validated on {held_out[VALIDATION]}" if VALIDATION in held_out else ""
    unread = sorted(unread_splits(given))
    passed = f"; {', '.join(unread)} is not read" if unread else ""
    classes = f"{plural(len(names), 'class', 'classes')}, " if settings.targets else ""
    line = f"layout: {layout}; {classes}{sizes}; {how}{passed}"
    turned = _turned(images)
    told = [f"{plural(turned, 'image')} turned as EXIF says"] if turned else []
    return (line, *(_smaller(settings, images) if settings.targets else ()), *told)


def _turned(images: ImageTable) -> int:
    return int(np.count_nonzero(images.column("turned") & images.kept()))


def _usual_side(images: ImageTable) -> int:
    return int(np.median(np.maximum(images.column("width"), images.column("height"))[images.kept()]))


def _smaller(settings: PictureSettings, images: ImageTable) -> list[str]:
    """Return advice to use a smaller side if most pixels would be enlarged."""
    typical = _usual_side(images)
    fitting = max(8, -8 * (-typical // 8))
    if 3 * fitting > 2 * settings.side:
        return []
    times = (settings.side / fitting) ** 2
    advice = f"--set conversion.side={fitting} trains about {times:.2g} times as fast"
    return [f"half of the images are {typical} pixels or smaller, vs side {settings.side}: {advice}"]
