"""Open a user's images as a source; docs/how-to/images.md describes layouts and exclusions.

Each image is decoded once into the cache folder, in reading order. Records are ordered by image identity, so that the
same images give the same records in any layout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from podline.base.errors import SettingsError, SourceError
from podline.base.plurals import first_few, plural
from podline.data.decoders import pixels_digest
from podline.data.identity import hexadecimal
from podline.data.images.columns import with_whole_numbers
from podline.data.images.corrections import DROP, correct
from podline.data.images.deciding import decide, most_left_out, refuse_empty
from podline.data.images.decoded import decode_images
from podline.data.images.image_table import ImageTable
from podline.data.images.items import held_out_splits, unread_splits
from podline.data.images.layout import NOTES
from podline.data.images.listing import source_files
from podline.data.images.parsing import parsed
from podline.data.images.settings import ImagesSettings, PictureSettings
from podline.data.pictures import CLEAR, DARK
from podline.data.shown import shortened
from podline.data.sources.class_names import alike
from podline.data.sources.remote import is_remote, on_this_machine
from podline.data.sources.source import Source, splits_of
from podline.documents.manifest import SPLITS, TEST, TRAINING, VALIDATION, SourceFile
from podline.recipes.datasets import DataSet
from podline.settings import machine
from podline.store import digests
from podline.store.folder import FolderStore

_FILES_OF = (TEST, TRAINING, VALIDATION)  # order of the splits in the fingerprint's list of images
_FORM = "rows of pixels and facts"  # format version of the files in the cache folder
_NAMED = 3
_ALL_DARK = (
    "all images of the {split} split have 16 bits and values below 4,096, so they would be nearly black; give the "
    "value of white, such as 4095 for 12 bits: --set conversion.white=4095"
)
_CLEAR = "{images} transparent everywhere, so white in the records; give images without transparency"
_MORE_IMAGES = "give more images, or another share of test images (conversion.test_share)"


def open_images(
    dataset: DataSet,
    source: str,
    settings: PictureSettings,
    work: Path,
    wanted: Callable[[str], bool] = lambda _name: True,
    inspect: Callable[[ImageTable], object] = lambda _images: None,
) -> Source:
    """Open a source of the user's own images.

    Args:
        dataset: the data set.
        source: a folder or a file, here or in ``gs://``.
        settings: where images and classes are found, and the form of the records.
        work: the cache folder.
        wanted: returns whether a file of a bucket is needed, given its name.
        inspect: leaves out images with invalid targets; called before splits are decided.

    Raises:
        SettingsError: the settings belong to another kind of task than the data set, or a layout cannot be imported.
        SourceError: the source cannot be read, or has no known layout, too few classes, or a split without images; or
            see :func:`podline.data.images.deciding.decide`.
        ArtifactError: an object of a bucket was replaced.
        StoreError: the cache folder cannot be written, or a bucket cannot be read.
    """
    if settings.targets and settings.kind != dataset.kind:
        raise SettingsError(
            f"data set {dataset.name}: its settings are for the kind {settings.kind}, expected {dataset.kind}; set "
            f"kind in {dataset.settings}"
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
) -> Source:
    source, targets = str(place), settings.targets
    becoming = [settings.model_dump(mode="json", exclude={*settings.after_decoding}), settings.near_share < 1]
    limits = [machine.load().parse_limits, machine.load().parse_pixels]  # with higher limits, more images may decode
    depends = [_FORM, dataset.base, dataset.version, becoming, pixels_digest(), limits, settings.code]
    with FolderStore(work).workspace("list") as folder:
        files, form = source_files(place, settings, folder), digests.of_json([*depends, uri or source])
        read = partial(parsed, source, files, settings, folder)
        state = digests.of_json(source if uri else files.state)  # links to objects have names that include the state
        images, pixels = decode_images(read, settings, form, state, work, folder)
    if isinstance(settings, ImagesSettings):
        images.labels = with_whole_numbers(images.labels, settings)
    reviewed = settings.corrections
    if targets:
        reviewed = {image: targets.text(label) if label != DROP else DROP for image, label in reviewed.items()}
    corrected = correct(images, reviewed)
    layout, given = images.about["layout"], frozenset[str](json.loads(images.about["splits"]))
    held_out = held_out_splits(given)
    inspect(images)
    untrained = decide(images, given, settings.test_share, targets).untrained
    names = targets.class_names(images.labels.of(images.kept(TRAINING))) if targets else ()
    told = [*json.loads(images.about["facts"]).get(NOTES, ()), *alike(names, untrained)]
    if targets and len(names) < (least := targets.least_classes):
        why = "".join(f"; {line}" for line in [*told, *_untrained(untrained, given)])
        why += "" if untrained else most_left_out(images)
        raise SourceError(
            f"{source}: {layout}: {plural(len(names), 'class', 'classes')} with a training image"
            f"{''.join(f', {name!r},' for name in names)} vs {least} at least{why}"
        )
    splits = [split for split in SPLITS if split != VALIDATION or VALIDATION in held_out]
    remedies = [*told, *([] if held_out else [_MORE_IMAGES])]
    refuse_empty(source, images, splits, "".join(f"; {line}" for line in remedies))
    numbers = {split: images.ordered(images.kept(split)) for split in splits}
    return Source(
        dataset=dataset.name,
        class_names=names,
        files=(_content_of(images),),
        splits=splits_of(images, numbers, pixels, settings.shape, targets, names, {}),
        images=images,
        targets=targets.fields(names) if targets else (),
        corrected=corrected,
        words=(*_words(layout, given, settings, images, names), *told, *_untrained(untrained, given)),
        settings=settings,
        skeleton=None,
        kind=dataset.kind,
        warnings=tuple(_warnings(images, splits)),
    )


def _warnings(images: ImageTable, splits: Sequence[str]) -> Iterator[str]:
    """Yield warnings about images that are probably not what the user intended."""
    marks = images.column("marks")
    for split in splits:
        if (marks[images.kept(split)] & DARK).all():
            yield _ALL_DARK.format(split=split)
    if clear := int(np.count_nonzero(marks[images.kept()] & CLEAR)):
        yield _CLEAR.format(images=plural(clear, "image is", "images are"))


def _untrained(classes: Mapping[str, int], given: frozenset[str]) -> list[str]:
    """Return a line on classes whose usable images are all held out, with their number; empty if there are none."""
    if not classes:
        return []
    named = first_few([f"{shortened(name)} ({plural(count, 'image')})" for name, count in classes.items()], _NAMED)
    place = "test or validation split" if VALIDATION in held_out_splits(given) else "test split"
    remedy = "put some of them into the training split" if held_out_splits(given) else _MORE_IMAGES
    which = "class" if len(classes) == 1 else "classes"
    return [f"all usable images of the {which} {named} are in the {place}, none is left for training: {remedy}"]


def _content_of(images: ImageTable) -> SourceFile:
    """Return a file entry that stands for all decoded, labelled images and their splits; the same for any layout."""
    classes, order = images.labels.values, np.array([_FILES_OF.index(split) for split in SPLITS])
    ranks = np.argsort(np.argsort(np.array(classes, object)))
    identities, sizes, codes = images.column("identity"), images.column("bytes"), images.labels.codes
    numbers = images.ordered((codes >= 0) & (images.column("pixels") != b""))
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
    told = [f"{plural(images.turned, 'image')} turned as EXIF says"] if images.turned else []
    return (line, *(_smaller(settings, images) if settings.targets else ()), *told)


def _smaller(settings: PictureSettings, images: ImageTable) -> list[str]:
    """Return advice to set a smaller side if at least half of the images are much smaller than it; else nothing."""
    typical = images.usual_side
    fitting = max(8, -8 * (-typical // 8))
    if 3 * fitting > 2 * settings.side:
        return []
    times = (settings.side / fitting) ** 2
    advice = f"--set conversion.side={fitting} trains about {times:.2g} times as fast"
    return [f"half of the images are {typical} pixels or smaller, but the side is {settings.side}: {advice}"]
