"""Opens images of one's own as a source; docs/how-to/images.md tells its user what is read and what is left out.

Every image is decoded once into the cache folder, in the order of reading. Records come in the order of the sha256 of
the images' files, so that the same images in any layout become the same records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline import settings as machine
from podline.arrays import Array
from podline.data.decoded_rows import HASHES, DecodedRows, StoredRows
from podline.data.decoders import pixels_digest
from podline.data.images.deciding import Image, decide, in_general, kept
from podline.data.images.hashing import HASHED
from podline.data.images.items import TEST, TRAIN, Place, test_split_of, unread_splits
from podline.data.images.listing import source_files
from podline.data.images.near import NearPair, near_lines, near_pairs, refuse_near
from podline.data.images.parsing import Parsed, delete_parsed, parsed
from podline.data.images.settings import ImagesSettings
from podline.data.planning import ShardPlans
from podline.data.rawfiles import RawFile, made_once, raw_file, reading
from podline.data.records import Feature
from podline.data.rows import EDGES, FileOfFiles, FilesByRow, SourceSplit
from podline.data.shown import printable
from podline.data.sources.decoding import DECODING, Decoding, Pictures, Request
from podline.data.sources.left_out import LeftOut
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Remarks, ShardTables, Source
from podline.documents.manifest import Quarantined, SourceFile
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store import digests
from podline.store.contract import explained

_IMAGES, _FILES = "images.json", "files"
_FORM = "columns and checksums"  # of what is kept in the cache folder
_columns = attrgetter(*(column.name for column in fields(Image)))


@dataclass(frozen=True)
class ImagesSource(Source):
    """A source of images of one's own.

    Attributes:
        images: all of them, also those that are left out.
        words: what was found.
        settings: what the images became.
    """

    images: Sequence[Image] = ()
    words: tuple[str, ...] = ()
    settings: ImagesSettings = field(default_factory=ImagesSettings)

    @cached_property
    def near(self) -> tuple[NearPair, ...]:
        """Near-duplicates across the splits, the nearest first."""
        [rows] = self.splits[0].blocks
        known = np.frombuffer(rows.read_all(HASHES), HASHED) if isinstance(rows, StoredRows) else None
        return near_pairs(self.images, self.pixels, self.settings, known)

    def pixels(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return decoded images by row: uint8, (n, side, side, channels)."""
        return replace(self.splits[0], kept=None).read(rows)["image"]

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; see :class:`podline.data.records.Feature`."""
        image, *labels = super().features
        return (replace(image, fit=self.settings.fit if self.settings.keep_files else None), *labels)

    @property
    def bytes_of_a_file(self) -> int:
        """Return the size of an image's file that records hold, on average, rounded up."""
        sizes = [image.bytes for image in kept(self.images)] if self.settings.keep_files else []
        return -(-sum(sizes) // max(1, len(sizes)))

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Of each split, without stray files."""
        parts = {split: LeftOut(f"images of the {split} split") for split in (TRAIN, TEST)}
        for image in self.images:
            if not image.stray:
                parts[image.split].read += 1
                parts[image.split].add(in_general(image.reason), int(bool(image.reason)))
        return tuple(parts.values())

    @property
    def counted(self) -> dict[str, int]:
        """Images that are turned, and test images with a near-duplicate."""
        turned = sum(image.turned for image in kept(self.images))
        counts = {"turned as EXIF says": turned, "test images that nearly repeat a training image": len(self.near)}
        return {rule: count for rule, count in counts.items() if count}

    def looked_at(self) -> tuple[ImagesSource, Remarks]:
        """Return the source as it is: images that are the same were left out when it was opened.

        Raises:
            SourceError: too many test images nearly repeat a training image.
        """
        refuse_near(self.near, self.sizes[TEST], self.settings.near_share)
        return self, Remarks(notes=(*self.words, *self.near_lines()))

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, elsewhere: bool) -> ShardTables:  # noqa: ARG002
        """See :meth:`RawData.shard_tables`; decoded images are where workers see them, wherever these are."""
        return super().shard_tables(plans, seed, folder, elsewhere=False)

    def near_lines(self) -> list[str]:
        """How many test images have a near-duplicate, in words."""
        return near_lines(self.near, self.sizes[TEST])


def open_images(dataset: DataSet, source: str, settings: ImagesSettings, work: Path) -> ImagesSource:
    """Open images of one's own.

    Args:
        dataset: what it is called.
        source: a folder or a file.
        settings: where images and classes are, and what the images become.
        work: the cache folder.

    Raises:
        SourceError: nothing is there that is known, fewer than two classes, or a split without an image.
        StoreError: the cache folder cannot be written, or a bucket not be read.
    """
    with on_this_machine(source, work) as place:
        return _opened(dataset, place, settings, work)


def _opened(dataset: DataSet, place: Path, settings: ImagesSettings, work: Path) -> ImagesSource:
    files, source = source_files(place, settings), str(place)
    becoming = settings.model_dump(mode="json", exclude={"near_share", "test_share"})
    limits, decoding = machine.load().parse_limits, DECODING.get()  # higher limits may decode what was left out
    form = [_FORM, dataset.base, dataset.version, becoming, pixels_digest(), limits, settings.code, decoding.key]
    key = digests.of_json([form, source, files.state])
    read = partial(parsed, source, files, settings)
    listed, *beside = made_once(work, key, partial(_decode, read, settings, decoding))
    pixels = decoding.rows(listed.path.parent, settings.shape)
    with explained("read", listed.path):
        said: dict[str, Any] = json.loads(listed.path.read_bytes())
    images = [Image(*row) for row in zip(*said["columns"], strict=True)]
    given = frozenset[str](said["splits"])
    decide(images, given, settings.test_share, settings.targets)
    where = f"{source}: {said['words']}"
    names = settings.targets.class_names({image.label or "" for image in kept(images, TRAIN)})
    if len(names) < settings.targets.least_classes:
        raise SourceError(
            f"{where}: {plural(len(names), 'class', 'classes')} with a training image vs "
            f"{settings.targets.least_classes} at least"
            f"{_most_left_out(images)}"
        )
    copied = FileOfFiles(beside[0].place) if beside else None
    stored = pixels if settings.keep_files and isinstance(pixels, StoredRows) else copied
    return ImagesSource(
        dataset=dataset.name,
        class_names=names,
        files=(_content_of(images),),
        splits=tuple(_split(split, source, settings, pixels, stored, images, names) for split in (TRAIN, TEST)),
        quarantined=tuple(
            Quarantined(split=image.split, record=printable(image.key, 1_000), reason=image.reason)
            for image in images
            if image.reason
        ),
        images=images,
        words=_words(said["words"], given, settings, images, names),
        settings=settings,
        kind=settings.kind,
    )


def _decode(read: Callable[..., Parsed], settings: ImagesSettings, decoding: Decoding, folder: Path) -> list[RawFile]:
    """Decode the images of a source."""
    layout = read(folder=folder)
    images: list[Image] = []
    places: list[Place] = []
    same: dict[int, int] = {}
    with explained("write", folder):
        becoming, copied = Pictures(settings.shape, settings.fit), settings.keep_files and not decoding.key
        for item in layout.items:
            image = Image(item.key, item.label, item.split, item.group, item.reason, item.stray)
            if item.same >= 0:
                same[len(images)] = item.same
            elif isinstance(item.data, Place):
                image.row = len(places)
                places.append(item.data)
            images.append(image)
        decoded = (image for image in images if image.row >= 0)
        for image, look in zip(decoded, decoding.looks(becoming, map(Request, places), folder), strict=True):
            image.reason, image.stray = image.reason or look.reason, image.stray and not look.picture
            image.sha256, image.pixels_sha256, image.bytes = look.sha256, look.pixels, look.bytes
            image.width, image.height, image.turned = look.width, look.height, look.turned
        for at, first in same.items():
            one = images[at]
            images[at] = replace(images[first], key=one.key, label=one.label, split=one.split, group=one.group)
        if copied:
            _copy_files(places, images, folder / _FILES)
        delete_parsed(folder)
        columns = [*zip(*map(_columns, images), strict=True)]
        known = {"words": layout.words, "splits": sorted(layout.splits), "columns": columns}
        (folder / _IMAGES).write_text(json.dumps(known))
    beside = (_FILES, f"{_FILES}{EDGES}") if copied else ()
    return [raw_file(name, folder / name) for name in (_IMAGES, *beside)]


def _copy_files(places: Sequence[Place], images: Sequence[Image], path: Path) -> None:
    """Copy the files of images that were decoded, by row, into one; where each begins goes beside it.

    Raises:
        SourceError: one is not what was decoded.
    """
    decoded, sizes = {image.row: image.sha256 for image in images if not image.reason}, [0]
    with path.open("wb") as stream:
        for row, place in enumerate(places):
            data = b""
            if row in decoded:
                with reading(place.path), Path(place.path).open("rb") as image:
                    image.seek(place.start)
                    data = image.read(place.bytes)
                if digests.of_bytes(data) != decoded[row]:
                    raise SourceError(f"{place.path} was changed while it was read; convert again")
            sizes.append(stream.write(data))
    np.cumsum(sizes, dtype="<i8").tofile(f"{path}{EDGES}")


def _split(
    split: str,
    source: str,
    settings: ImagesSettings,
    pixels: DecodedRows,
    stored: FilesByRow | None,
    images: Sequence[Image],
    names: Sequence[str],
) -> SourceSplit:
    mine = sorted(kept(images, split), key=lambda image: image.sha256)
    if not mine:
        raise SourceError(f"{source}: the {split} split has no image vs 1 at least{_most_left_out(images)}")
    rows, targets = np.array([image.row for image in mine], np.int64), dict[str, Array]()
    for name, values in settings.targets.arrays([image.label or "" for image in mine], names).items():
        targets[name] = np.zeros((pixels.count, *values.shape[1:]), values.dtype)
        targets[name][rows] = values
    return SourceSplit(split, settings.shape, (pixels,), targets, rows, stored)


def _content_of(images: Sequence[Image]) -> SourceFile:
    """All images with their classes and splits as one file, the same in any layout; what has no class is none of it."""
    lines = sorted(
        (image.split, image.label, image.sha256, image.bytes)
        for image in images
        if image.sha256 and image.label is not None
    )
    return SourceFile(name="images", bytes=sum(line[-1] for line in lines), sha256=digests.of_json(lines))


def _most_left_out(images: Sequence[Image]) -> str:
    """Return the most frequent reason, to end an error with."""
    left_out = [image for image in images if image.reason]
    if not left_out:
        return ""
    ((reason, _count),) = Counter(image.reason for image in left_out).most_common(1)
    first = printable(next(image.key for image in left_out if image.reason == reason))
    return f"; {len(left_out):,} of {len(images):,} files are left out: {first} {reason}"


def _words(
    layout: str, given: frozenset[str], settings: ImagesSettings, images: Sequence[Image], names: Sequence[str]
) -> tuple[str, ...]:
    sizes = ", ".join(f"{len(kept(images, split)):,} {split}" for split in (TRAIN, TEST))
    test = test_split_of(given)
    how = f"tested on {test}" if test else f"{settings.test_share:.0%} to test on, by a hash"
    unread = sorted(unread_splits(given))
    passed = f"; {', '.join(unread)} is not read" if unread else ""
    line = f"layout: {layout}; {plural(len(names), 'class', 'classes')}, {sizes}; {how}{passed}"
    turned = sum(image.turned for image in kept(images))
    told = [f"{plural(turned, 'image')} turned as EXIF says"] if turned else []
    return (line, *_smaller(settings, images), *told)


def _smaller(settings: ImagesSettings, images: Sequence[Image]) -> list[str]:
    """Say that the images are so small that most pixels would be made up, and which side fits them."""
    typical = int(np.median([max(image.width, image.height) for image in kept(images)]))
    fitting = max(8, -8 * (-typical // 8))
    if 3 * fitting > 2 * settings.side:
        return []
    times = (settings.side / fitting) ** 2
    advice = f"--set conversion.side={fitting} trains about {times:.2g} times as fast"
    return [f"half of the images are {typical} pixels large at most vs side {settings.side}: {advice}"]
