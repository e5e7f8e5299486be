"""Opens images of one's own as a source; docs/images.md tells its user what is read and what is left out.

Every image is decoded once into the cache folder, in the order of reading. Records come in the order of the sha256 of
the images' files, so that the same images in any layout become the same records.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from podline import settings as machine
from podline.data.decoded_rows import DecodedRows, StoredRows
from podline.data.images.deciding import Decided, Seen, decide, in_general
from podline.data.images.decoders import pixels_digest
from podline.data.images.items import TEST, TRAIN, Item, Place, test_split_of, unread_splits
from podline.data.images.listing import source_files
from podline.data.images.near_pairs import NearPair, NearSearch, near_lines, refuse_near
from podline.data.images.parsing import Parsed, delete_parsed, parsed
from podline.data.images.settings import ImagesSettings
from podline.data.planning import ShardPlans
from podline.data.rawfiles import RawFile, made_once, raw_file, reading
from podline.data.records import LABEL, Feature
from podline.data.rows import EDGES, FileOfFiles, SourceSplit
from podline.data.shown import printable
from podline.data.sources.decoding import DECODING, Decoding, Look, Pictures, Request
from podline.data.sources.left_out import LeftOut
from podline.data.sources.source import Remarks, ShardTables, Source, Work
from podline.documents.manifest import Quarantined, SourceFile
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store import digests
from podline.store.contract import explained

_SEEN, _FILES = "seen.json", "files"
_FORM = "with checksums"  # of what is kept in the cache folder


@dataclass(frozen=True)
class ImagesSource(Source):
    """A source of images of one's own.

    Attributes:
        decided: every image, and why it is left out.
        words: what was found.
        search: for near-duplicates.
    """

    decided: Decided = field(default_factory=lambda: Decided([], []))
    words: tuple[str, ...] = ()
    search: NearSearch | None = None

    @cached_property
    def near(self) -> tuple[NearPair, ...]:
        """Near-duplicates across the splits, the nearest first."""
        return self.search.pairs(self.decided) if self.search else ()

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; see :class:`podline.data.records.Feature`."""
        image, *labels = super().features
        fit = self.search.settings.fit if self.search and self.splits[0].files else None
        return (replace(image, fit=fit), *labels)

    @property
    def bytes_of_a_file(self) -> int:
        """Return the size of an image's file that records hold, on average, rounded up."""
        kept = self.decided.kept() if self.splits[0].files else []
        return -(-sum(self.decided.seen[at].bytes for at in kept) // max(1, len(kept)))

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Of each split, without stray files."""
        return _parts(self.decided)

    @property
    def counted(self) -> dict[str, int]:
        """Images that are turned, and test images with a near-duplicate."""
        turned = sum(self.decided.seen[at].turned for at in self.decided.kept())
        counts = {"turned as EXIF says": turned, "test images that nearly repeat a training image": len(self.near)}
        return {rule: count for rule, count in counts.items() if count}

    def looked_at(self) -> tuple[ImagesSource, Remarks]:
        """Return the source as it is: images that are the same were left out when it was opened.

        Raises:
            SourceError: too many test images nearly repeat a training image.
        """
        self.refuse_near()
        return self, Remarks(notes=(*self.words, *self.near_lines()))

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, work: Work) -> ShardTables:
        """See :meth:`RawData.shard_tables`; decoded images are where workers see them, wherever these are."""
        return super().shard_tables(plans, seed, folder, work._replace(elsewhere=False))

    def near_lines(self) -> list[str]:
        """How many test images have a near-duplicate, in words."""
        return near_lines(self.near, self.decided)

    def refuse_near(self) -> None:
        """Check that few test images have a near-duplicate.

        Raises:
            SourceError: more than ``near_share`` have one.
        """
        if self.search:
            refuse_near(self.near, self.decided, self.search.settings.near_share)


def open_images(dataset: DataSet, source: str, settings: ImagesSettings, work: Path) -> ImagesSource:
    """Open images of one's own.

    Args:
        dataset: what it is called.
        source: a folder or a file.
        settings: where images and classes are, and what the images become.
        work: the cache folder.

    Raises:
        SourceError: nothing is there that is known, fewer than two classes, or a split without an image.
        StoreError: the cache folder cannot be written.
    """
    files = source_files(source, settings, work)
    becoming = settings.model_dump(mode="json", exclude={"near_share", "test_share"})
    limits, decoding = machine.load().parse_limits, DECODING.get()  # higher limits may decode what was left out
    form = [_FORM, dataset.base, dataset.version, becoming, pixels_digest(), limits, settings.code, decoding.key]
    key = digests.of_json([form, source, files.state])
    read = partial(parsed, source, files, settings)
    seen, *kept = made_once(work, key, partial(_look, read, settings, decoding))
    pixels = decoding.rows(seen.path.parent, settings.shape)
    said: dict[str, Any] = json.loads(_content(seen))
    splits = frozenset(said["splits"])
    decided = decide([Seen(*one) for one in zip(*said["columns"], strict=True)], splits, settings.test_share)
    opened = _source(dataset, source, said["words"], splits, settings, pixels, decided)
    if settings.keep_files:
        held = pixels if isinstance(pixels, StoredRows) else FileOfFiles(kept[0].place)
        opened = replace(opened, splits=tuple(replace(split, files=held) for split in opened.splits))
    return replace(opened, search=NearSearch(work, key, pixels, settings))


def _content(file: RawFile) -> bytes:
    with explained("read", str(file.path)):
        return Path(str(file.path)).read_bytes()


def _look(read: Callable[..., Parsed], settings: ImagesSettings, decoding: Decoding, folder: Path) -> list[RawFile]:
    """Decode the images of a source."""
    layout = read(folder=folder)
    seen: list[Seen] = []
    places: list[Place | bytes] = []
    with explained("write", folder):
        becoming = Pictures(settings.shape, settings.fit)
        for item, row, look in looks(layout.items, lambda requests: decoding.looks(becoming, requests, folder)):
            stray, reason = item.stray and not look.picture, item.reason or look.reason
            file = (look.sha256, look.pixels, look.bytes, look.width, look.height, look.turned)
            said = Seen(item.key, item.label, item.split, item.group, row, *file, stray, reason)
            if item.same >= 0:
                said = seen[item.same]._replace(key=item.key, label=item.label, split=item.split, group=item.group)
            seen.append(said)
            if row >= 0:
                places.append(item.data)
        copied = settings.keep_files and not decoding.key
        if copied:
            _copy_files(places, seen, folder / _FILES)
        delete_parsed(folder)
        known = {"words": layout.words, "splits": sorted(layout.splits), "columns": [*zip(*seen, strict=True)]}
        (folder / _SEEN).write_text(json.dumps(known))
    kept = (_FILES, f"{_FILES}{EDGES}") if copied else ()
    return [raw_file(name, folder / name) for name in (_SEEN, *kept)]


def looks(
    items: Iterable[Item], decode: Callable[[Iterable[Request]], Iterator[Look]]
) -> Iterator[tuple[Item, int, Look]]:
    """Yield each item, the row of its pixels (-1 of one that is not looked at), and what it is.

    One that has a reason already is looked at if its data are known; of items with the same data the first is.
    """
    waiting: deque[tuple[Item, int]] = deque()

    def requests() -> Iterator[Request]:
        row = 0
        for item in items:
            wanted = item.data if isinstance(item.data, Place) and item.same < 0 else None
            waiting.append((item, -1 if wanted is None else row))
            if wanted is not None:
                yield Request(wanted)
                row += 1

    def unasked() -> Iterator[tuple[Item, int, Look]]:
        while waiting and waiting[0][1] < 0:
            yield (*waiting.popleft(), Look())

    for look in decode(requests()):
        yield from unasked()
        yield (*waiting.popleft(), look)
    yield from unasked()


def _copy_files(places: Sequence[Place | bytes], seen: Sequence[Seen], path: Path) -> None:
    """Copy the files of images that were decoded, by row, into one; where each begins goes beside it.

    Raises:
        SourceError: one is not what was decoded.
    """
    decoded, sizes = {one.row: one.sha256 for one in seen if not one.reason}, [0]
    with path.open("wb") as stream:
        for row, place in enumerate(places):
            data = b""
            if row in decoded and isinstance(place, Place):
                with reading(place.path), Path(place.path).open("rb") as image:
                    image.seek(place.start)
                    data = image.read(place.bytes)
                if digests.of_bytes(data) != decoded[row]:
                    raise SourceError(f"{place.path} was changed while it was read; convert again")
            sizes.append(stream.write(data))
    np.cumsum(sizes, dtype="<i8").tofile(f"{path}{EDGES}")


def _source(
    dataset: DataSet,
    source: str,
    layout: str,
    given: frozenset[str],
    settings: ImagesSettings,
    pixels: DecodedRows,
    decided: Decided,
) -> ImagesSource:
    names = _class_names(decided)
    if len(names) < 2:
        raise SourceError(
            f"{source}: {layout}: {plural(len(names), 'class', 'classes')} with a training image vs 2 at least"
            f"{_most_left_out(decided)}"
        )
    files = (_content_of(decided),)
    return ImagesSource(
        dataset=dataset.name,
        class_names=names,
        files=files,
        splits=tuple(_split(split, source, settings, pixels, decided, names) for split in (TRAIN, TEST)),
        quarantined=_quarantined(decided),
        decided=decided,
        words=_words(layout, given, settings, decided, names),
    )


def _class_names(decided: Decided) -> tuple[str, ...]:
    """Those of training images; numbers by size, others by their letters."""
    names = {decided.seen[at].label or "" for at in decided.kept(TRAIN)}
    if all(name.isascii() and name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _split(
    split: str, source: str, settings: ImagesSettings, pixels: DecodedRows, decided: Decided, names: Sequence[str]
) -> SourceSplit:
    kept = sorted(decided.kept(split), key=lambda at: decided.seen[at].sha256)
    if not kept:
        raise SourceError(f"{source}: the {split} split has no image vs 1 at least{_most_left_out(decided)}")
    numbers = {name: at for at, name in enumerate(names)}
    rows = np.array([decided.seen[at].row for at in kept], np.int64)
    labels = np.zeros(pixels.count, np.min_scalar_type(len(names) - 1))
    labels[rows] = [numbers[decided.seen[at].label or ""] for at in kept]
    return SourceSplit(split, settings.shape, (pixels,), {LABEL: labels}, rows)


def _content_of(decided: Decided) -> SourceFile:
    """All images with their classes and splits as one file, the same in any layout; what has no class is none of it."""
    lines = sorted(
        (split, one.label, one.sha256, one.bytes)
        for one, split in zip(decided.seen, decided.splits, strict=True)
        if one.sha256 and one.label is not None
    )
    return SourceFile(name="images", bytes=sum(line[-1] for line in lines), sha256=digests.of_json(lines))


def _quarantined(decided: Decided) -> tuple[Quarantined, ...]:
    return tuple(
        Quarantined(split=split, record=printable(one.key, 1_000), reason=reason)
        for one, split, reason in zip(decided.seen, decided.splits, decided.reasons, strict=True)
        if reason
    )


def _parts(decided: Decided) -> tuple[LeftOut, ...]:
    parts = {split: LeftOut(f"images of the {split} split") for split in (TRAIN, TEST)}
    for one, split, reason in zip(decided.seen, decided.splits, decided.reasons, strict=True):
        if not one.stray:
            parts[split].read += 1
            parts[split].add(in_general(reason), int(bool(reason)))
    return tuple(parts.values())


def _most_left_out(decided: Decided) -> str:
    """Return the most frequent reason, to end an error with."""
    found = Counter(reason for reason in decided.reasons if reason).most_common(1)
    if not found:
        return ""
    ((reason, _count),) = found
    first = printable(decided.seen[decided.reasons.index(reason)].key)
    return f"; {sum(map(bool, decided.reasons)):,} of {len(decided.seen):,} files are left out: {first} {reason}"


def _words(
    layout: str, given: frozenset[str], settings: ImagesSettings, decided: Decided, names: Sequence[str]
) -> tuple[str, ...]:
    sizes = ", ".join(f"{len(decided.kept(split)):,} {split}" for split in (TRAIN, TEST))
    test = test_split_of(given)
    how = f"tested on {test}" if test else f"{settings.test_share:.0%} to test on, by a hash"
    unread = sorted(unread_splits(given))
    passed = f"; {', '.join(unread)} is not read" if unread else ""
    line = f"layout: {layout}; {plural(len(names), 'class', 'classes')}, {sizes}; {how}{passed}"
    turned = sum(decided.seen[at].turned for at in decided.kept())
    told = [f"{plural(turned, 'image')} turned as EXIF says"] if turned else []
    return (line, *_smaller(settings, decided), *told)


def _smaller(settings: ImagesSettings, decided: Decided) -> list[str]:
    """Say that the images are so small that most pixels would be made up, and which side fits them."""
    typical = int(np.median([max(one.width, one.height) for one in map(decided.seen.__getitem__, decided.kept())]))
    fitting = max(8, -8 * (-typical // 8))
    if 3 * fitting > 2 * settings.side:
        return []
    times = (settings.side / fitting) ** 2
    advice = f"--set conversion.side={fitting} trains about {times:.2g} times as fast"
    return [f"half of the images are {typical} pixels large at most vs side {settings.side}: {advice}"]
