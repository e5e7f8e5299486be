"""Parquet files: rows of a table, or images with their bytes as Hugging Face's datasets write them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from podline.data.images.columns import Columns, NoColumnError, columns_of, text_of
from podline.data.images.items import Item, split_in_name
from podline.data.images.labels import Labels, refuse_boxes, refuse_one_hot
from podline.data.images.limits import begin_file
from podline.data.images.listing import Found
from podline.data.images.settings import ImagesSettings
from podline.entry_points import reason
from podline.errors import PodlineError, SourceError
from podline.frozen import is_object

_ROWS = 64  # images at once
_TABLE_ROWS = 10_000
_BUFFER = 1 << 20  # bytes of a column at once, in place of all of a row group's
_METADATA = b"huggingface"


@contextlib.contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    """A file; whatever its reader says of it is about the source."""
    begin_file(path)
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER) as file:
            yield file
    except (PodlineError, MemoryError):
        raise
    except Exception as error:
        raise SourceError(f"{path} cannot be read as Parquet: {reason(error)}; restore the file") from error


def parquet_columns(path: str) -> list[str]:
    """The names of a file's columns.

    Raises:
        SourceError: it cannot be read.
    """
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def parquet_rows(path: str, columns: Sequence[str], at_once: int = _TABLE_ROWS) -> Iterator[dict[str, Any]]:
    """The values of some columns, row by row.

    Raises:
        SourceError: the file cannot be read.
    """
    with _opened(path) as file:
        for batch in file.iter_batches(at_once, columns=list(columns), use_threads=False):
            yield from batch.to_pylist()


@dataclass(frozen=True)
class ParquetImages:
    """See :class:`podline.data.images.items.Layout`.

    Attributes:
        found: the files.
        columns: the same in each of them.
        class_names: by label, where the files say them.
    """

    found: Sequence[Found]
    columns: Columns
    class_names: tuple[str, ...]

    @property
    def words(self) -> str:
        """How many files, and which columns."""
        named = f", {len(self.class_names)} class names" if self.class_names else ""
        columns = ", ".join(column for column in self.columns if column)
        return f"Parquet with images, files: {len(self.found)}, columns {columns}{named}"

    @property
    def splits(self) -> frozenset[str]:
        """By the column, else by the files' names."""
        if not self.columns.split:
            return frozenset(split_in_name(file.name) for file in self.found) - {""}
        rows = (row for file in self.found for row in parquet_rows(file.path, [self.columns.split]))
        return frozenset(_text(row[self.columns.split]).strip().lower() for row in rows) - {""}

    @property
    def paths(self) -> frozenset[str]:
        """Every file."""
        return frozenset(file.path for file in self.found)

    def items(self) -> Iterator[Item]:
        """Every row."""
        wanted = [column for column in self.columns if column]
        for file in self.found:
            for number, row in enumerate(parquet_rows(file.path, wanted, _ROWS)):
                yield self._item(file, f"{file.name}[{number}]", row)

    def _item(self, file: Found, key: str, row: dict[str, Any]) -> Item:
        image = row[self.columns.file]
        data = image.get("bytes") if is_object(image) else image
        split = _text(row[self.columns.split]).strip().lower() if self.columns.split else split_in_name(file.name)
        group = _text(row[self.columns.group]) if self.columns.group else ""
        label, problem = self._label(row[self.columns.label])
        if not isinstance(data, bytes):
            problem = "holds no image's bytes"
        return Item(key, b"" if problem or not isinstance(data, bytes) else data, label, split, group, problem)

    def _label(self, value: Any) -> tuple[str | None, str]:
        """A row's class, and why it has none."""
        if self.class_names and isinstance(value, int):
            if not 0 <= value < len(self.class_names):
                return None, f"has the label {value} vs 0 to {len(self.class_names) - 1}"
            return self.class_names[value], ""
        try:
            return text_of(value), ""
        except ValueError as error:
            return None, f"has a label that {error}"


def holds_images(path: str) -> bool:
    """Whether a file has a column of bytes.

    Raises:
        SourceError: it cannot be read.
    """
    with _opened(path) as file:
        return any(_holds_bytes(field.type) for field in file.schema_arrow)


def images_in(found: Sequence[Found], settings: ImagesSettings) -> ParquetImages | None:
    """Parquet files that hold images; None if there are none.

    Raises:
        SourceError: a file cannot be read, columns are not found, or files differ in them.
    """
    fitting: list[tuple[Found, Columns, tuple[str, ...]]] = []
    for file in found:
        with _opened(file.path) as opened:
            schema = opened.schema_arrow
        holding = [field.name for field in schema if _holds_bytes(field.type)]
        if len(holding) > 1 and settings.file_column not in holding:
            raise SourceError(
                f"{file.path}: images may be in {', '.join(holding)}; say in which by --set conversion.file_column=NAME"
            )
        image = settings.file_column or holding[0]
        try:
            columns = columns_of(file.path, schema.names, settings, image)
        except NoColumnError:
            others = [name for name in schema.names if name not in holding]
            refuse_boxes(file.path, others, settings)
            refuse_one_hot(file.path, parquet_rows(file.path, others))
            raise
        refuse_boxes(file.path, schema.names, settings)
        class_names = _class_names(file.path, schema, columns.label)
        _refuse_unclear(file.path, columns.label, bool(class_names), settings)
        fitting.append((file, columns, class_names))
    if not fitting:
        return None
    first, *others = fitting
    for file, *rest in others:
        if tuple(rest) != first[1:]:
            raise SourceError(f"{file.path} has other columns or class names than {first[0].path}; give one data set")
    return ParquetImages([file for file, _, _ in fitting], first[1], first[2])


def _refuse_unclear(path: str, column: str, named: bool, settings: ImagesSettings) -> None:
    """Check that the labels of a file are classes; whole numbers with names are."""
    labels = Labels()
    for row in parquet_rows(path, [column]):
        if not (named and isinstance(row[column], int)):
            labels.add(row[column])
    labels.refuse_unclear(path, column, settings)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _holds_bytes(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _class_names(path: str, schema: pa.Schema, label: str) -> tuple[str, ...]:
    """A ClassLabel's names, as datasets write them into the schema's metadata; empty where there are none."""
    try:
        said: Any = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
        for key in ("info", "features", label, "names"):
            said = said.get(key) if is_object(said) else None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: its metadata of Hugging Face is no JSON: {reason(error)}; write it anew") from error
    if said is None:
        return ()
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise SourceError(f"{path}: the names of its classes are no list of texts; write the file anew")
    return tuple(str(name) for name in said)


def _text(value: Any) -> str:
    try:
        return text_of(value) or ""
    except ValueError:
        return "?"
