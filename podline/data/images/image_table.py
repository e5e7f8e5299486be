"""Store the images of a source by column in a memory-mapped file; hold the splits and reasons decided for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.data.identity import IDENTITY_BYTES
from podline.data.images.arrow_file import TEXT, decoded, encoded, mapped, write_parts
from podline.data.images.hashing import HASHED
from podline.data.reasons import Reason
from podline.data.record_table import stored_digests
from podline.documents.manifest import SPLITS

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


IMAGE_FACTS = np.dtype(
    [
        *((name, f"S{IDENTITY_BYTES}") for name in ("identity", "pixels")),
        ("bytes", np.int64),
        *((name, np.int32) for name in ("width", "height")),
        *((name, np.bool_) for name in ("turned", "unturned")),
        ("marks", np.int8),
        *HASHED.descr,
    ]
)
"""The facts about a decoded image; the fields are in the order of :class:`podline.data.sources.decoding.Look`."""
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("key", "label", "split", "group", "reason"), TEXT),
    "stray": pa.bool_(),
    "row": pa.int64(),
    **{
        name: pa.binary(IDENTITY_BYTES) if IMAGE_FACTS[name].kind == "S" else pa.from_numpy_dtype(IMAGE_FACTS[name])
        for name in IMAGE_FACTS.names or ()
    },
    "target": TEXT,
}


class SourceImage(NamedTuple):
    """Name, label and split of an image, and its row of pixels."""

    key: str
    label: str
    split: str
    row: int


def write_columns(path: Path, parts: Iterable[Mapping[str, Any]], about: Mapping[str, str] | None = None) -> None:
    """Write the image table to a file, in reading order.

    Args:
        path: path of the file.
        parts: consecutive parts of the table: column → an Arrow array, or one value for all images. Missing columns are
            empty or zero; ``row`` must be an array, -1 for no pixels. A ``reason`` has details after a colon.
        about: metadata to store in the file.

    Raises:
        StoreError: the file cannot be written.
    """
    write_parts(path, _TYPES, map(_columns, parts), about or {})


def _columns(part: Mapping[str, Any]) -> Iterator[pa.Array]:
    for name, kind in _TYPES.items():
        value = part.get(name, "" if kind == TEXT else 0)
        text = encoded(value) if isinstance(value, str) else value
        yield value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(text).cast(kind), len(part["row"]))


class Texts(NamedTuple):
    """A dictionary-encoded column of texts.

    Attributes:
        values: the distinct texts.
        codes: index into ``values`` of each row's text, int32 (n,); -1 for a missing text.
    """

    values: list[str]
    codes: npt.NDArray[np.int32]

    def are(self, wanted: Collection[str]) -> Mask:
        """Return a mask, (n,), of the rows whose text is one of ``wanted``."""
        return np.array([*(value in wanted for value in self.values), False])[self.codes]

    def of(self, rows: Mask) -> set[str]:
        """Return the distinct texts in the rows of a mask, without missing ones."""
        return {self.values[code] for code in np.unique(self.codes[rows]).tolist() if code >= 0}

    def at(self, row: int) -> str:
        """Return the text of a row; empty if it is missing."""
        code = self.codes[row]
        return self.values[code] if code >= 0 else ""

    def changed(self, texts: Mapping[int, str]) -> Self:
        """Return a copy of the column with new texts in some rows."""
        values, codes = [*dict.fromkeys([*self.values, *texts.values()])], self.codes.copy()
        places = {value: place for place, value in enumerate(values)}
        codes[[*texts]] = [places[text] for text in texts.values()]
        return self._replace(values=values, codes=codes)


class ImageTable:
    """The images of a source, with the split or reason decided for each.

    Args:
        path: path of a file written by :func:`write_columns`.

    Attributes:
        about: metadata of the file.
        labels: label of each image; reviews and normalization may replace it.
        reasons: image number → why the image is left out.
        left_out: mask of the images that are left out, (n,).
        splits: split of each image, uint8 (n,), as an index into :data:`podline.documents.manifest.SPLITS`.
    """

    def __init__(self, path: Path) -> None:
        self._table = mapped(path)
        self.about = {name.decode(): text.decode() for name, text in self._table.schema.metadata.items()}
        self.labels, self.reasons = self.texts("label"), dict[int, Reason]()
        self.left_out, self.splits = np.zeros(len(self), np.bool_), np.zeros(len(self), np.uint8)

    def __len__(self) -> int:
        return len(self._table)

    def leave_out(self, number: int, reason: Reason) -> None:
        """Leave an image out, and record the reason."""
        self.left_out[number], self.reasons[number] = True, reason

    def kept(self, split: str | None = None) -> Mask:
        """Return a mask, (n,), of the images that are not left out, in one split or in all."""
        return ~self.left_out if split is None else ~self.left_out & self.of_split(split)

    def of_split(self, split: str) -> Mask:
        """Return a mask, (n,), of the images assigned to a split, including those left out."""
        return self.splits == SPLITS.index(split)

    def split_of(self, number: int) -> str:
        """Return the name of the split to which an image is assigned."""
        return SPLITS[self.splits[number]]

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of numbers or digests, (n,)."""
        column = self._table[name]
        return stored_digests(column) if pa.types.is_fixed_size_binary(column.type) else column.to_numpy()

    def texts(self, name: str) -> Texts:
        """Return a column of texts."""
        encoded: Any = self._table[name].dictionary_encode().combine_chunks()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return Texts(list(map(decoded, encoded.dictionary.to_pylist())), codes)

    def keys(self, numbers: Iterable[int]) -> list[str]:
        """Return the names in the source of the images with these numbers."""
        return [self.text("key", number) for number in numbers]

    def text(self, name: str, number: int) -> str:
        """Return the text of one image in a text column."""
        return decoded(self._table[name][number].as_py())

    def names(self, numbers: Numbers) -> Any:
        """Return names and pixel counts of some images as a table for :mod:`podline.data.versions.record_names`."""
        pixels = self.column("width")[numbers].astype(np.int64) * self.column("height")[numbers]
        return pa.table({"name": self._table["key"].take(numbers), "pixels": pixels})

    def ordered(self, mask: Mask) -> Numbers:
        """Return the numbers of the images in a mask, ordered by identity; equal images stay in reading order."""
        numbers = np.flatnonzero(mask)
        return numbers[np.argsort(self.column("identity")[numbers], kind="stable")]

    @property
    def turned(self) -> int:
        """The number of kept images that were rotated by their EXIF orientation."""
        return int(np.count_nonzero(self.column("turned") & self.kept()))

    @property
    def usual_side(self) -> int:
        """The median of the kept images' longer sides, in pixels, rounded down; at least one image must be kept."""
        return int(np.median(np.maximum(self.column("width"), self.column("height"))[self.kept()]))

    def is_whole(self) -> Mask:
        """Return a mask, (n,), of the items that neither layout nor decoder leave out; some may have no pixels."""
        return self.texts("reason").are({""})
