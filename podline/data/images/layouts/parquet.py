"""Parquet files: rows of a table, or images with their bytes as Hugging Face's datasets write them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from podline.data.images.columns import Columns, Labels, class_columns
from podline.data.images.items import Item, split_in_name
from podline.data.images.layout import Layout, opened
from podline.data.images.listing import Files, Found
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import parsing
from podline.errors import SourceError
from podline.frozen import is_object

ENDING = ".parquet"
_ROWS = 64  # images at once
_TABLE_ROWS = 10_000
_BUFFER = 1 << 20  # bytes of a column at once, in place of all of a row group's
_METADATA = b"huggingface"


@contextlib.contextmanager
def _opened(table: Found) -> Iterator[pq.ParquetFile]:
    with opened(table, "Parquet"), pq.ParquetFile(table.path, buffer_size=_BUFFER) as file:
        yield file


def parquet_schema(table: Found) -> pa.Schema:
    """Return the columns of a file, with what was said of them.

    Raises:
        SourceError: it cannot be read.
    """
    with _opened(table) as file:
        return file.schema_arrow


def parquet_rows(table: Found, columns: Sequence[str], at_once: int = _TABLE_ROWS) -> Iterator[dict[str, Any]]:
    """Yield the values of some columns, row by row.

    Raises:
        SourceError: the file cannot be read.
    """
    with _opened(table) as file:
        for batch in file.iter_batches(at_once, columns=list(columns), use_threads=False):
            yield from batch.to_pylist()


@dataclass(frozen=True)
class ParquetImages(Layout):
    """See :class:`podline.data.images.layout.Layout`.

    Attributes:
        columns: the same in each of the files.
        class_names: by label, where the files say them.
    """

    columns: Columns
    class_names: tuple[str, ...]

    accepts = "Parquet with images"
    opens = (ENDING,)

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return Parquet files that hold images; None if there are none.

        Raises:
            SourceError: a file cannot be read, columns are not found, or files differ in them.
        """
        schemas = {file: parquet_schema(file) for file in files.ending(ENDING)}
        found = {file: _chosen(file, schema, settings) for file, schema in schemas.items() if holding_images(schema)}
        for (one, chosen), (other, also) in pairwise(found.items()):
            if chosen != also:
                raise SourceError(f"{other.path} has other columns or class names than {one.path}; give one data set")
        return cls([*found], *next(iter(found.values()))) if found else None

    @property
    def words(self) -> str:
        """How many files, and which columns."""
        named = f", {len(self.class_names)} class names" if self.class_names else ""
        columns = ", ".join(column for column in self.columns if column)
        return f"Parquet with images, files: {len(self.read)}, columns {columns}{named}"

    @property
    def splits(self) -> frozenset[str]:
        """By the column, else by the files' names."""
        if not self.columns.split:
            return frozenset(split_in_name(file.name) for file in self.read) - {""}
        rows = (row for file in self.read for row in parquet_rows(file, [self.columns.split]))
        return frozenset(str(row[self.columns.split] or "").strip().lower() for row in rows) - {""}

    def items(self) -> Iterator[Item]:
        """Every row."""
        wanted = [column for column in self.columns if column]
        for file in self.read:
            for number, row in enumerate(parquet_rows(file, wanted, _ROWS)):
                yield self._item(file, f"{file.name}[{number}]", row)

    def _item(self, file: Found, key: str, row: dict[str, Any]) -> Item:
        image, number = row[self.columns.file], row[self.columns.label]
        data = image.get("bytes") if is_object(image) else image
        try:
            label, split, group = self.columns.read(row, file.name)
        except ValueError as error:
            return Item(key, b"", reason=str(error))
        if not isinstance(data, bytes):
            return Item(key, b"", label, split, group, "holds no image's bytes")
        if self.class_names and isinstance(number, int):
            if not 0 <= number < len(self.class_names):
                has = f"has the label {number} vs 0 to {len(self.class_names) - 1}"
                return Item(key, data, None, split, group, has)
            label = self.class_names[number]
        return Item(key, data, label, split, group)


def holding_images(schema: pa.Schema) -> list[str]:
    """Return the columns that hold bytes."""
    return [field.name for field in schema if _holds_bytes(field.type)]


def _chosen(table: Found, schema: pa.Schema, settings: ImagesSettings) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns of a file with images, and the names of its classes; whole numbers with names are labels."""
    holding = holding_images(schema)
    if len(holding) > 1 and settings.file_column not in holding:
        raise SourceError(
            f"{table.path}: images may be in {', '.join(holding)}; say in which by --set conversion.file_column=NAME"
        )
    others = [name for name in schema.names if name not in holding]
    image = settings.file_column or holding[0]
    columns = class_columns(table.path, schema.names, settings, lambda: parquet_rows(table, others), image)
    class_names, labels = _class_names(table, schema, columns.label), Labels()
    for row in parquet_rows(table, [columns.label]):
        if not (class_names and isinstance(row[columns.label], int)):
            labels.add(row[columns.label])
    labels.refuse_unclear(table.path, columns.label, settings)
    return columns, class_names


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _holds_bytes(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _class_names(table: Found, schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Return a ClassLabel's names, as datasets write them into the schema's metadata; empty where there are none."""
    with parsing(table.path, "Parquet with metadata of Hugging Face", "write it anew"):
        said: Any = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
    for key in ("info", "features", label, "names"):
        said = said.get(key) if is_object(said) else None
    if said is None:
        return ()
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise SourceError(f"{table.path}: the names of its classes are no list of texts; write the file anew")
    return tuple(str(name) for name in said)
