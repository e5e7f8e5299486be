"""Looks at COCO's image files: checksum, whether whole, size in pixels.

Every file is read for it, whole. Where they are in a bucket, what was found is kept: a generation of an object never
changes, so the next conversion of the same ones need not read them again to know that there is nothing to do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from podline.data.sources.coco_images import ImagePlace, Images
from podline.data.sources.image_files import MemberError, Seen, seen
from podline.data.sources.jpeg import Jpeg, JpegError
from podline.data.sources.lookers import Lookers
from podline.errors import PodlineError
from podline.store import digests
from podline.store.folder import FolderStore
from podline.store.prefetch import in_order

# So many images are looked at in a row, if everybody gets so many turns.
_MOST_IN_A_ROW, _TURNS = 256, 8


class Look(NamedTuple):
    """What looking at one image's file tells: where it is, what it is, or why it is of no use."""

    place: ImagePlace | None
    jpeg: Jpeg | None
    problem: str


def looked_at(images: Images, names: Sequence[str], lookers: Lookers, work: Path | None) -> Iterator[Look]:
    """Looks at images by their names, in order.

    Args:
        images: where they are.
        names: of their files; an empty one has none.
        lookers: who helps if they are many, and on this machine.
        work: the folder where looks at images in a bucket are kept; None is nowhere.

    Raises:
        SourceError: the images cannot be read.
        StoreError: likewise, or ``work`` cannot be written.
    """
    if not images.generations:
        return _looks(images, names, lookers, lookers.start(len(names)))
    if work is None:
        return _looks(images, names, lookers)
    kept = FolderStore(work / "looks")
    file = f"{digests.of_json([images.generations, list(names)])[:32]}.json"
    known = _known(kept, file)
    if known is None:
        known = list(_looks(images, names, lookers))
        kept.publish_bytes(file, json.dumps(known).encode(), replace=True)
    return iter(known)


def _looks(images: Images, names: Sequence[str], lookers: Lookers, helpers: int = 0) -> Iterator[Look]:
    # One more, so that no helper waits for a question.
    threads = helpers + 1 if helpers else images.parallel
    # To hand each image to a thread by itself would take as long as to look at it.
    size = max(1, min(_MOST_IN_A_ROW, len(names) // (_TURNS * threads)))
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    looks = in_order(lambda group: _looks_in_a_row(images, group, lookers), groups, threads)
    return itertools.chain.from_iterable(looks)


def _known(kept: FolderStore, file: str) -> list[Look] | None:
    try:
        noted = kept.read_json(file)
        return [Look(place and ImagePlace(*place), jpeg and Jpeg(*jpeg), problem) for place, jpeg, problem in noted]
    except (PodlineError, TypeError, ValueError):
        return None  # nothing, or not what was written


def _looks_in_a_row(images: Images, names: Sequence[str], lookers: Lookers) -> list[Look]:
    found = [_found(images, name) for name in names]
    # One in a bucket has no file here, and one that cannot be read says so when it is read once more.
    answers = lookers.see([look.place and look.place.file for look in found])
    pairs = zip(found, answers, strict=True)
    return [look if look.place is None else _look(images, look.place, answer) for look, answer in pairs]


def _found(images: Images, name: str) -> Look:
    """Where an image is, or why it cannot be read."""
    try:
        place = images.place(name) if name else None
    except JpegError as error:
        return Look(None, None, f"the file {error}")
    return Look(place, None, "" if place else f"{images.shown} has no such file")


def _look(images: Images, place: ImagePlace, known: Seen | None) -> Look:
    try:
        what = known or seen(place.read_any())
    except MemberError as error:
        return Look(None, None, f"{images.shown} is damaged there, at byte {place.offset:,}: {error}")
    found = place._replace(size=what.size, crc=what.crc)
    if place.offset is not None and found != place:
        return Look(found, None, f"{images.shown} is damaged there: size or checksum is not the directory's")
    return Look(found, what.jpeg, what.problem and f"the file {what.problem}")
