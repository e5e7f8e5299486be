"""Decodes and letter-boxes COCO's images once, into the cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podline import settings
from podline.data.decoded_rows import DecodedRows
from podline.data.decoders import pixels_digest
from podline.data.rawfiles import RawFile, made_once, raw_file
from podline.data.sources.coco_annotations import Listed
from podline.data.sources.decoding import DECODING, Decoding, Look, Pictures, Request
from podline.store import digests
from podline.store.contract import explained

_FORM = "letter-boxed 3"  # version of the files in the cache folder
_LOOKS = "looks.jsonl"


class Decoded(NamedTuple):
    """The decoded images of an annotation file.

    Attributes:
        rows: the letter-boxed images, each uint8 (side, side, 3).
        looks: the facts about each entry with a file, in order; an image's number is its row.
    """

    rows: DecodedRows
    looks: list[Look]


def decoded(listed: Listed, side: int, work: Path) -> Decoded:
    """Decode the images that an annotation file lists, or reuse those of an earlier call.

    Args:
        listed: the annotation file.
        side: side of the letter-boxed square.
        work: the cache folder of sources.

    Raises:
        SourceError: an image cannot be read.
        StoreError: the cache folder cannot be written.
        OutOfMemoryError: the memory is too small.
    """
    limits, decoding = settings.load().parse_limits, DECODING.get()  # higher limits may decode more images
    form = Pictures((side, side, 3), "letterbox", ())
    key = digests.of_json([_FORM, side, limits, pixels_digest(), listed.entries_sha256, decoding.key])
    [looks] = made_once(work, key, partial(_decode, listed, form, decoding))
    rows = decoding.rows(looks.path.parent, form.shape)
    with explained("read", looks.path), looks.path.open() as lines:
        return Decoded(rows, [Look(*json.loads(line)) for line in lines])


def _decode(listed: Listed, becoming: Pictures, decoding: Decoding, folder: Path) -> list[RawFile]:
    def requests() -> Iterator[Request]:
        for entry in listed.entries():
            if entry.file is not None:
                yield Request(entry.file, (entry.width, entry.height))

    with explained("write", folder), (folder / _LOOKS).open("w") as lines:
        for look in decoding.looks(becoming, requests(), folder):
            lines.write(f"{json.dumps(look)}\n")
    return [raw_file(_LOOKS, folder / _LOOKS)]
