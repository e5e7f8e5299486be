"""Searches a store for the bytes of an image: the original file, and its encodings in records, caches and pages."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import cv2
import numpy as np

from podline.base.arrays import Pixels
from podline.base.progress import Reporter
from podline.data.identity import identified
from podline.data.jpeg_files import encoded
from podline.data.picture_sandbox import PictureSandbox, read_picture_file
from podline.data.pictures import Form
from podline.data.versions.fingerprint import source_cache
from podline.documents.manifest import Fit
from podline.ledger.inventory.catalogue import datasets, manifest_of
from podline.store.contract import Store, explained

_AT_ONCE = 64_000_000
_EMBEDDED = re.compile(rb"data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]+)")
_LOSS = 12.0  # mean pixel change by the lowest JPEG quality of a page, 0 … 255; different images differ by 60


class Traces(NamedTuple):
    """The result of a search.

    Attributes:
        image: identity of the image.
        objects: number of objects that were read, in the store and in this machine's caches.
        bytes: number of bytes that were read.
        found: ``NAME: ENCODING`` for each object that contains the image.
    """

    image: str
    objects: int
    bytes: int
    found: list[str]


def search(store: Store, dataset: str, image: Path, reporter: Reporter) -> Traces:
    """Search for an image in every object of a store and in this machine's caches for the store.

    Args:
        store: the store to search.
        dataset: name of the data set whose image sizes define the encodings to search for.
        image: path of the image's file.
        reporter: reports the progress.

    Raises:
        SourceError: the file cannot be decoded.
        StoreError: a file cannot be read.
    """
    file = read_picture_file(image)
    manifests = [manifest_of(store, one) for one in datasets(store, dataset)]
    whites = {(*manifest.image_shape, int(manifest.converter.get("white", 0))) for manifest in manifests}
    with PictureSandbox() as sandbox:
        squares = [
            sandbox.decode([file], Form((*shape,), fit, white))[0] for *shape, white in whites for fit in get_args(Fit)
        ]
    wanted = {file.data: "its file"}
    for square in squares:
        wanted |= {square.tobytes(): f"pixels {square.shape}", encoded(square): f"JPEG record {square.shape}"}
    names, count, size, found = [*store.listing()], 0, 0, list[str]()
    cached = [path for path in source_cache(store).rglob("*") if path.is_file()]
    for name, pieces in (
        *((one.name, store.read_pieces(one.name, _AT_ONCE, one.version)) for one in names),
        *((str(path), _pieces(path)) for path in cached),
    ):
        overlap, end, hits = max(map(len, wanted)), b"", dict[str, None]()
        for piece in pieces:
            data = end + piece
            hits |= dict.fromkeys(what for needle, what in wanted.items() if needle in data)
            if name.endswith(".html") and any(_shows(data, square) for square in squares):
                hits["a picture of it"] = None
            end, size = data[-overlap:], size + len(piece)
        found += [f"{name}: {what}" for what in hits]
        count += 1
        reporter.progress(count, len(names) + len(cached), "objects")
    return Traces(identified(file.data).identity.hex(), count, size, found)


def _pieces(path: Path) -> Iterator[bytes]:
    with explained("read", path), path.open("rb") as stream:
        while piece := stream.read(_AT_ONCE):
            yield piece


def _shows(page: bytes, square: Pixels) -> bool:
    """Return whether a page embeds a picture equal to ``square``, uint8 (height, width, 3), up to JPEG's loss."""
    for match in _EMBEDDED.finditer(page):
        stored = cv2.imdecode(np.frombuffer(base64.b64decode(match[1] + b"=="), np.uint8), cv2.IMREAD_COLOR)
        if stored is None or stored.shape[:2] != square.shape[:2]:
            continue
        if np.abs(stored[..., ::-1].astype(int) - square).mean() < _LOSS:
            return True
    return False
