"""What the files of COCO's images are: their checksums, whether they are whole, and their sizes in pixels.

Every file is read for it, whole. Where they are in a bucket, what was found is kept: a generation of an object never
changes, so the next conversion of the same ones need not read them again to know that there is nothing to do.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from podline import digests
from podline.ahead import in_order
from podline.data.sources.coco_images import ImagePlace, Images
from podline.data.sources.jpeg import Jpeg, JpegError, inspect
from podline.errors import PodlineError
from podline.storage import FolderStore

# A thread looks at so many images in a row, if every thread gets so many turns.
_MOST_IN_A_ROW, _TURNS = 64, 8


class Look(NamedTuple):
    """What looking at one image's file tells: where it is, what it is, or why it is of no use."""

    place: ImagePlace | None
    jpeg: Jpeg | None
    problem: str


def looked_at(images: Images, names: Sequence[str], work: Path | None) -> Iterator[Look]:
    """Looks at images by their names, in order.

    Args:
        images: where they are.
        names: of their files; an empty one has none.
        work: the folder where looks at images in a bucket are kept; None is nowhere.

    Raises:
        SourceError: the images cannot be read.
        StoreError: likewise, or ``work`` cannot be written.
    """
    if work is None or not images.generations:
        return _looks(images, names)
    kept = FolderStore(work / "looks")
    file = f"{digests.of_json([images.generations, list(names)])[:32]}.json"
    known = _known(kept, file)
    if known is None:
        known = list(_looks(images, names))
        kept.publish_bytes(file, json.dumps(known).encode(), replace=True)
    return iter(known)


def _looks(images: Images, names: Sequence[str]) -> Iterator[Look]:
    # To hand each image to a thread by itself would take as long as to look at it.
    size = max(1, min(_MOST_IN_A_ROW, len(names) // (_TURNS * images.parallel)))
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    looks = in_order(lambda group: [_look(images, name) for name in group], groups, images.parallel)
    return itertools.chain.from_iterable(looks)


def _known(kept: FolderStore, file: str) -> list[Look] | None:
    try:
        noted = kept.read_json(file)
        return [Look(place and ImagePlace(*place), jpeg and Jpeg(*jpeg), problem) for place, jpeg, problem in noted]
    except (PodlineError, TypeError, ValueError):
        return None  # nothing, or not what was written


def _look(images: Images, name: str) -> Look:
    place = None
    try:
        place = images.place(name) if name else None
        if place is None:
            return Look(None, None, f"{images.shown} has no such file")
        data = place.read_any()
        found = place._replace(size=len(data), crc=zlib.crc32(data))
        if place.offset is not None and found != place:
            return Look(found, None, f"{images.shown} is damaged there: size or checksum is not the directory's")
        place = found
        return Look(place, inspect(data), "")
    except JpegError as error:
        return Look(place, None, f"the file {error}")
