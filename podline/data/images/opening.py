"""Opens a user's images as a source; docs/how-to/images.md describes layouts and exclusions.

Every image is decoded once into the cache folder, in reading order. Records are ordered by the sha256 of the image
files, so that the same images give the same records in any layout.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline import settings as machine
from podline.arrays import Array
from podline.data.decoded_rows import HASHES, DecodedRows
from podline.data.decoders import pixels_digest
from podline.data.fitting import SQUEEZE
from podline.data.images.column_file import array, compute, decoded
from podline.data.images.corrections import CorrectedTable
from podline.data.images.deciding import decide, in_general
from podline.data.images.decoded import IMAGES, decode_images
from podline.data.images.hashing import HASHED
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.items import held_out_splits, unread_splits
from podline.data.images.listing import source_files
from podline.data.images.near import NearPair, near_counts, near_lines, near_pairs, refuse_near
from podline.data.images.parsing import parsed
from podline.data.images.settings import ImagesSettings
from podline.data.jpeg_files import SAMPLED, mean_size
from podline.data.planning import ShardPlans
from podline.data.rawfiles import made_once
from podline.data.record_table import DIGEST_BYTES
from podline.data.records import Feature
from podline.data.rows import SourceSplit
from podline.data.shown import printable, shortened
from podline.data.sources.decoding import DECODING, FORGOTTEN
from podline.data.sources.left_out import LeftOut
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Remarks, ShardTables, Source
from podline.documents.manifest import SPLITS, TEST, TRAIN, VALIDATION, Quarantined, SourceFile
from podline.errors import SettingsError, SourceError
from podline.kinds.contract import Doubt, TextTargets
from podline.kinds.table import kind_named
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store import digests
from podline.store.folder import FolderStore

_FILES_OF = (TEST, TRAIN, VALIDATION)  # the order of splits in the list of all images
_FORM = "columns in Arrow, of all splits, with stamps"  # version of the files in the cache folder
_NAMED = 3
_MORE_IMAGES = "give more images, or another share of them to test on (conversion.test_share)"
_GATHERED = 1_000_000  # checksums that are read at once


class Identities(NamedTuple):
    """The identities of records, (n,) each: the first bytes of the checksums of their files and of their content."""

    keys: npt.NDArray[np.bytes_]
    digests: npt.NDArray[np.bytes_]


@dataclass(frozen=True, kw_only=True)
class ImagesSource(Source):
    """A source of the user's own images.

    Attributes:
        images: all images, including those that are left out.
        words: a description of the source.
        settings: the form of the images.
    """

    images: ImageTable
    words: tuple[str, ...] = ()
    settings: ImagesSettings = field(default_factory=ImagesSettings)

    @cached_property
    def near(self) -> tuple[NearPair, ...]:
        """Near-duplicates across the splits, nearest first."""
        [rows] = self.splits[0].blocks
        hashes = rows.each(HASHES) if isinstance(rows, DecodedRows) else ()
        known = (np.frombuffer(some, HASHED) for some in hashes)
        return near_pairs(self.images, self.pixels, self.settings, rows.count, known)

    def pixels(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return decoded images by row: uint8, (n, side, side, channels)."""
        return replace(self.splits[0], kept=None).read(rows)["image"]

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; see :class:`podline.data.records.Feature`."""
        image, *labels = super().features
        return (replace(image, fit=SQUEEZE if self.settings.keep_jpeg else None), *labels)

    @property
    def bytes_of_a_file(self) -> int:
        """Return the mean size, rounded up, of an image file in a record."""
        some = np.asarray(self.splits[0].kept)[:SAMPLED]
        return mean_size(self.pixels(some)) if self.settings.keep_jpeg else 0

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The images of each split and how many are left out, not counting stray files."""
        meant = ~self.images.column("stray", self.images.every)
        parts = {
            split: LeftOut(f"images of the {split} split", int((meant & self.images.of_split(split)).sum()))
            for split in self.sizes
        }
        for number, reason in self.images.reasons.items():
            if in_general(reason) == FORGOTTEN:
                continue
            parts[self.images.split_of(number)].add(in_general(reason), int(meant[number]))
        return tuple(parts.values())

    @property
    def counted(self) -> dict[str, int]:
        """Numbers of turned images, of images that reviews corrected, and of images with near-duplicates."""
        turned = _turned(self.images)
        counts = {"turned as EXIF says": turned} if turned else {}
        corrected = self.images.counts if isinstance(self.images, CorrectedTable) else {}
        return {**counts, **corrected, **near_counts(self.near)}

    def looked_at(self) -> tuple[ImagesSource, Remarks]:
        """Return the source itself, whose repeated images were already left out when it was opened.

        Raises:
            SourceError: too many images of a split have a near-duplicate in another split.
        """
        refuse_near(self.near, self.sizes, self.settings.near_share)
        lost = self.images.lines() if isinstance(self.images, CorrectedTable) else []
        doubt = [self.doubt.words] if self.doubt else []
        return self, Remarks(notes=(*self.words, *doubt, *lost, *self.near_lines()))

    @cached_property
    def class_counts(self) -> dict[str, list[int]]:
        """Number of images of each class, by split."""
        return {
            split.name: self.settings.targets.census(
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

    def shard_tables(self, plans: ShardPlans, seed: int | None, folder: Path, elsewhere: bool) -> ShardTables:  # noqa: ARG002
        """See :meth:`RawData.shard_tables`; every worker can read the decoded images.

        Records keep the order of their files' checksums for every seed, since this order is as good as random.
        """
        return super().shard_tables(plans, None, folder, elsewhere=False)

    def identities(self) -> dict[str, Iterator[Identities]]:
        """Yield the identities of each split's records, in order, a part at a time."""
        return {split.name: self._identities(split) for split in self.splits}

    def _identities(self, split: SourceSplit) -> Iterator[Identities]:
        numbers, kept = self.images.by_checksum(self.images.kept(split.name)), np.asarray(split.kept)
        for first in range(0, len(numbers), _GATHERED):
            some = slice(first, first + _GATHERED)
            files, pixels = self.images.gather(numbers[some], "sha256", "pixels_sha256")
            targets = [np.ascontiguousarray(values[kept[some]]) for values in split.targets.values()]
            known = [column.view(np.uint8).reshape(len(files), -1) for column in (pixels, *targets)]
            digests = [hashlib.sha256(row).digest()[:DIGEST_BYTES] for row in np.concatenate(known, axis=1)]
            yield Identities(files.astype(f"S{DIGEST_BYTES}"), np.array(digests, f"S{DIGEST_BYTES}"))

    def part(self, records: Mapping[str, Numbers]) -> ImagesSource:
        """Return the source with only some records of its splits, without empty splits."""
        return replace(
            self,
            splits=tuple(
                replace(split, kept=np.asarray(split.kept)[records[split.name]])
                for split in self.splits
                if len(records[split.name])
            ),
        )

    def near_lines(self) -> list[str]:
        """Return one line per pair of splits with the number of near-duplicates."""
        return near_lines(self.near, self.sizes)


def open_images(dataset: DataSet, source: str, settings: ImagesSettings, work: Path) -> ImagesSource:
    """Open a source of the user's own images.

    Args:
        dataset: the data set.
        source: a folder or a file.
        settings: the places of images and classes, and the form of the images.
        work: the cache folder.

    Raises:
        SettingsError: the settings belong to another kind of task than the data set.
        SourceError: the source has no known layout, too few classes, or a split without images.
        StoreError: the cache folder cannot be written, or a bucket cannot be read.
    """
    if settings.kind != dataset.kind:
        raise SettingsError(
            f"data set {dataset.name}: its settings are of the kind {settings.kind}, expected {dataset.kind}; set kind "
            f"in {dataset.settings}"
        )
    with on_this_machine(source, work) as place:
        return _opened(dataset, place, settings, work)


def _opened(dataset: DataSet, place: Path, settings: ImagesSettings, work: Path) -> ImagesSource:
    source = str(place)
    becoming = settings.model_dump(mode="json", exclude={"near_share", "test_share", "corrections"})
    limits, decoding = machine.load().parse_limits, DECODING.get()  # higher limits may decode more images
    depends = [_FORM, dataset.base, dataset.version, becoming, pixels_digest(), limits, settings.code, decoding.key]
    with FolderStore(work).workspace("list") as folder:
        files, form = source_files(place, settings, folder), digests.of_json([*depends, source])
        read = partial(parsed, source, files, settings)
        key = digests.of_json([form, files.state])
        cached = made_once(work, key, partial(decode_images, read, settings, decoding, form, work))[0].path.parent
    pixels = decoding.rows(cached, settings.shape)
    said, table = settings.corrections, cached / IMAGES
    images = CorrectedTable(table, said) if said else ImageTable(table)
    layout, given = images.about["layout"], frozenset[str](json.loads(images.about["splits"]))
    untrained = decide(images, given, settings.test_share, settings.targets)
    names = settings.targets.class_names({decoded(text) for text in images.values("label", images.kept(TRAIN))})
    if len(names) < (least := settings.targets.least_classes):
        why = "".join(f"; {line}" for line in _untrained(untrained, given)) or _most_left_out(images)
        raise SourceError(
            f"{source}: {layout}: {plural(len(names), 'class', 'classes')} with a training image"
            f"{''.join(f', {name!r},' for name in names)} vs {least} at least{why}"
        )
    targets = _targets(images, settings.targets, names, pixels.count)
    return ImagesSource(
        dataset=dataset.name,
        class_names=names,
        files=(_content_of(images),),
        splits=tuple(
            SourceSplit(split, settings.shape, (pixels,), targets, _rows(source, images, split, given))
            for split in SPLITS
            if split != VALIDATION or VALIDATION in held_out_splits(given)
        ),
        quarantined=tuple(
            Quarantined(split=images.split_of(at), record=printable(key, 1_000), reason=images.reasons[at])
            for at, (key,) in images.some(np.flatnonzero(images.left_out), "key")
        ),
        images=images,
        words=(*_words(layout, given, settings, images, names), *_untrained(untrained, given)),
        settings=settings,
        kind=settings.kind,
    )


def _targets(images: ImageTable, targets: TextTargets, names: Sequence[str], rows: int) -> dict[str, Array]:
    """Return the targets of each decoded image, by row; only those of kept images are used."""
    kept, found = images.kept(), dict[str, Array]()
    texts = sorted(images.values("label", kept))
    of_texts = targets.arrays(list(map(decoded, texts)), names)
    for name, values in of_texts.items():
        found[name] = np.zeros((rows, *values.shape[1:]), values.dtype)
    for first, batch in images.batches("label", "row"):
        mine = kept[first : first + len(batch)]
        for name, values in of_texts.items():
            found[name][array(batch["row"])[mine]] = values[_numbers(batch["label"], texts)[mine]]
    return found


def _numbers(labels: pa.Array, known_labels: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """Return the place of each label among ``known_labels``, or -1."""
    known = pa.array(known_labels, pa.binary())
    return array(compute.fill_null(compute.index_in(labels, known), -1))


def _rows(source: str, images: ImageTable, split: str, given: frozenset[str]) -> Numbers:
    """Return the rows of a split's images in the order of their checksums.

    Raises:
        SourceError: the split has no image.
    """
    kept = images.kept(split)
    if not kept.any():
        remedy = "" if held_out_splits(given) else f"; {_MORE_IMAGES}"
        raise SourceError(f"{source}: the {split} split has no image vs 1 at least{remedy}{_most_left_out(images)}")
    [rows] = images.gather(images.by_checksum(kept), "row")
    return rows


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
    labels = sorted(images.values("label", images.every))
    names, places, total = list(map(decoded, labels)), np.zeros(len(images), np.int32), 0
    for first, batch in images.batches("label", "sha256", "bytes"):
        mine = slice(first, first + len(batch))
        places[mine] = _numbers(batch["label"], labels)
        places[mine][array(batch["sha256"]) == b""] = -1
        total += int(array(batch["bytes"])[places[mine] >= 0].sum())
    numbers = images.by_checksum(places >= 0)
    places += len(names) * np.array([_FILES_OF.index(split) for split in SPLITS], np.int32)[images.splits]
    numbers = numbers[np.argsort(places[numbers], kind="stable")]
    return SourceFile(name="images", bytes=total, sha256=digests.of_list(_content(images, numbers, names, places)))


def _content(
    images: ImageTable, numbers: Numbers, names: Sequence[str], places: npt.NDArray[np.int32]
) -> Iterator[tuple[str, str, str, int]]:
    """Yield split, class, checksum and size of images."""
    for first in range(0, len(numbers), _GATHERED):
        some = numbers[first : first + _GATHERED]
        checksums, sizes = images.gather(some, "sha256", "bytes")
        for at, (place, size) in enumerate(zip(places[some].tolist(), sizes.tolist(), strict=True)):
            split, name = divmod(int(place), len(names))
            yield _FILES_OF[split], names[name], checksums[at : at + 1].tobytes().hex(), size


def _most_left_out(images: ImageTable) -> str:
    """Return the most frequent reason for leaving images out, as the end of an error."""
    if not images.reasons:
        return ""
    ((reason, _count),) = Counter(images.reasons.values()).most_common(1)
    number = next(number for number, other in images.reasons.items() if other == reason)
    [(_, (key,))] = images.some(np.array([number]), "key")
    return f"; {len(images.reasons):,} of {len(images):,} files are left out: {printable(key)} {reason}"


def _words(
    layout: str, given: frozenset[str], settings: ImagesSettings, images: ImageTable, names: Sequence[str]
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
    line = f"layout: {layout}; {plural(len(names), 'class', 'classes')}, {sizes}; {how}{passed}"
    turned = _turned(images)
    told = [f"{plural(turned, 'image')} turned as EXIF says"] if turned else []
    return (line, *_smaller(settings, images), *told)


def _turned(images: ImageTable) -> int:
    return int(np.count_nonzero(images.column("turned", images.kept())))


def _smaller(settings: ImagesSettings, images: ImageTable) -> list[str]:
    """Return advice to use a smaller side if most pixels would be enlarged."""
    typical = int(np.median(np.maximum(*(images.column(name, images.kept()) for name in ("width", "height")))))
    fitting = max(8, -8 * (-typical // 8))
    if 3 * fitting > 2 * settings.side:
        return []
    times = (settings.side / fitting) ** 2
    advice = f"--set conversion.side={fitting} trains about {times:.2g} times as fast"
    return [f"half of the images are {typical} pixels or smaller, vs side {settings.side}: {advice}"]
