"""Tables of labels beside file names, or beside the images themselves: CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
import posixpath
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from podline.data import bounds
from podline.data.images.columns import Columns, Labels, class_columns, text_of
from podline.data.images.items import Item, Place, read_items, split_in_name, write_item
from podline.data.images.layout import Layout, opened
from podline.data.images.listing import Files, Found, Listing, Names
from podline.data.images.settings import ImagesSettings
from podline.data.places import IMAGE_ENDINGS
from podline.data.rawfiles import reading
from podline.data.shown import printable, shortened
from podline.errors import SourceError
from podline.frozen import is_object

PARQUET = ".parquet"
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", PARQUET)
_MARKS = ",;\t|"
# Above this share of files with several rows, a table describes something else, for example boxes of objects.
_MAX_REPEATED = 0.1
_ROWS, _IMAGES = 10_000, 64  # rows of a Parquet file that are read at once; images
_BUFFER = 1 << 20  # bytes of a column that are read at once, instead of a row group
_METADATA = b"huggingface"


class Row(NamedTuple):
    """A row: its number or place, and its values by column or the reason why it has none."""

    key: str
    values: Mapping[str, Any]
    reason: str = ""


class Table(NamedTuple):
    """A table of images and their classes.

    Attributes:
        file: the table's file.
        columns: the roles of its columns.
        has_images: whether the column of files holds the images themselves.
        class_names: class names by label, if the file has them.
    """

    file: Found
    columns: Columns
    has_images: bool = False
    class_names: tuple[str, ...] = ()


class _Listed(NamedTuple):
    """The rows of tables that name files.

    Attributes:
        file: the file with the items, one per line.
        named: which of the surrounding files are named.
        repeated: the rows of files that have several rows.
    """

    file: IO[str]
    named: npt.NDArray[np.bool_]
    repeated: Mapping[str, Sequence[Item]]

    def items(self) -> Iterator[Item]:
        """Yield the rows; only one caller at a time may read the file."""
        self.file.seek(0)
        yield from read_items(self.file)


@dataclass(frozen=True)
class Tables(Layout):
    """The layout of tables; it also reads every file that a table names.

    Attributes:
        tables: the tables; either all hold images, or all hold file names.
        around: the files that they may name.
        settings: settings of the conversion.
    """

    tables: Sequence[Table]
    around: Listing
    settings: ImagesSettings

    accepts = "a table of labels with files or images (CSV, TSV, JSON Lines, Parquet)"
    opens = ENDINGS
    unread = "is not named by the table"

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the tables that name labels and files, or that hold images.

        Raises:
            SourceError: no table has labels, or a table with images is damaged or differs from the others.
        """
        tables, problems = [], []
        for file in files.ending(*ENDINGS):
            schema = _schema(file) if file.ends(PARQUET) else None
            images = [field.name for field in schema or () if _holds_bytes(field.type)]
            try:
                tables.append(_table_of_images(file, schema, images, settings) if images else _table(file, settings))
            except SourceError as error:
                if images:
                    raise
                problems.append(error)
        if problems and not tables:
            raise problems[0]
        tables = [table for table in tables if table.has_images] or tables
        for one, other in pairwise(tables):
            if one.has_images and one[1:] != other[1:]:
                raise SourceError(
                    f"{other.file.path} has other columns or class names than {one.file.path}; give one data set"
                )
        return cls([table.file for table in tables], tables, files.around, settings) if tables else None

    @property
    def words(self) -> str:
        """Describe the tables and columns."""
        files = ", ".join(printable(file.name) for file in self.read[:3])
        more = f" and {len(self.read) - 3} more" if len(self.read) > 3 else ""
        columns = ", ".join(map(printable, self.tables[0].columns.names[:12]))
        return f"table{' of images' if self.tables[0].has_images else ''}, {files}{more}, columns {columns}"

    def reads(self, file: Found, /) -> bool:
        """Return whether a file is a table, or is named in one."""
        if super().reads(file) or self.tables[0].has_images:
            return super().reads(file)
        return any(self._listed.named[at] for at, _ in self._by_path.find(file.path))

    @property
    def splits(self) -> frozenset[str]:
        """Return the splits in the column, else in the file names, without reading images."""
        column = self.tables[0].columns.split
        if not self.tables[0].has_images:
            return frozenset(item.split for item in self.items() if not item.reason) - {""}
        if not column:
            return frozenset(split_in_name(file.name) for file in self.read) - {""}
        rows = (row for file in self.read for row in _parquet_rows(file, [column]))
        return frozenset(str(row[column] or "").strip().lower() for row in rows) - {""}

    def items(self) -> Iterator[Item]:
        """Yield every row."""
        if not self.tables[0].has_images:
            items, repeated = self._listed.items(), self._listed.repeated
            if self.settings.several:
                yield from _united(items, repeated, self.settings)
            else:
                yield from _with_repeated(items, repeated)
            return
        for table in self.tables:
            for number, row in enumerate(_parquet_rows(table.file, table.columns.names, _IMAGES)):
                yield _image(table, f"{table.file.name}[{number}]", row, self.settings)

    @cached_property
    def _by_name(self) -> Names:
        return Names(self.around, lambda file: file.name)

    @cached_property
    def _by_path(self) -> Names:
        return Names(self.around, lambda file: file.path)

    @cached_property
    def _by_stem(self) -> Names:
        """Index the images by path without the ending."""
        return Names(self.around, lambda file: file.name[: file.name.rfind(".")] if file.is_image else None)

    @cached_property
    def _listed(self) -> _Listed:
        named, keys = np.zeros(len(self.around), np.bool_), array("q")
        file = tempfile.NamedTemporaryFile("w+", delete=False)  # noqa: SIM115 (closed with this object)
        Path(file.name).unlink()  # at once, since this process may be killed
        for table in self.tables:
            labels, column = Labels(), table.columns.label
            for row in _rows(table.file, table.columns.names):
                labels.add(row.values.get(column))
                at, item = self._item(table, row)
                named[at] |= at >= 0
                keys.append(hash(item.key))
                write_item(file, item)
            labels.refuse_unclear(table.file.path, column, self.settings)
        values, counts = np.unique(np.frombuffer(keys, np.int64), return_counts=True)
        listed, allowed = _Listed(file, named, {}), 1.0 if self.settings.several else _MAX_REPEATED
        repeated = _repeated(self.read[0].path, listed.items(), values[counts > 1], len(values), allowed)
        return listed._replace(repeated=repeated)

    def _item(self, table: Table, row: Row) -> tuple[int, Item]:
        """Return a row's item, and the number of the file that it names, or -1."""
        if row.reason:
            return -1, Item(row.key, b"", reason=row.reason)
        try:
            label, split, group = table.columns.read(row.values, table.file.name, self.settings)
            name = text_of(row.values.get(table.columns.file))
        except ValueError as error:
            return -1, Item(row.key, b"", reason=str(error))
        if name is None:
            return -1, Item(row.key, b"", label, reason="names no file")
        name = name.replace("\\", "/")
        inside = self.around.relative(name)
        folder = "" if self.settings.images or inside != name else posixpath.dirname(table.file.name)
        path = posixpath.normpath(posixpath.join(folder, inside))
        files = self._by_name.find(path)
        if not files and PurePosixPath(path).suffix.lower() not in IMAGE_ENDINGS:
            files = self._by_stem.find(path)
        if reason := _unusable(path, [file for _, file in files]):
            return files[0][0] if len(files) == 1 else -1, Item(path, b"", label, split, group, reason)
        [(at, file)] = files
        return at, Item(file.name, Place(file.path), label, split, group)


def _unusable(path: str, files: Sequence[Found]) -> str:
    """Return why none of the files of a path or ID can be read; empty if one can."""
    if len(files) > 1:
        return f"may be {files[0].name} or {files[1].name}"
    if path.startswith(("../", "/")):
        return "lies outside of the source"
    if not files:
        return "there is no such file"
    return "" if files[0].bytes >= 0 else "cannot be read as a file"


def _table(file: Found, settings: ImagesSettings) -> Table:
    """Return a table of names.

    Raises:
        SourceError: the columns of files or labels are missing, or the labels are not classes.
    """
    header = _header(file)
    return Table(file, class_columns(file.path, header, settings, lambda: (row.values for row in _rows(file, header))))


def _table_of_images(file: Found, schema: Any, images: Sequence[str], settings: ImagesSettings) -> Table:
    """Return a Parquet file with images, as Hugging Face's datasets write them: bytes, or a struct with bytes."""
    if len(images) > 1 and settings.file_column not in images:
        raise SourceError(
            f"{file.path}: images may be in {', '.join(images)}; say in which by --set conversion.file_column=NAME"
        )
    others = [name for name in schema.names if name not in images]
    image = settings.file_column or images[0]
    columns = class_columns(file.path, schema.names, settings, lambda: _parquet_rows(file, others), image)
    class_names, labels = _class_names(file, schema, columns.label), Labels()
    for row in _parquet_rows(file, [columns.label]) if columns.label else ():
        if not (class_names and isinstance(row[columns.label], int)):  # else the label is the number of a class
            labels.add(row[columns.label])
    labels.refuse_unclear(file.path, columns.label, settings)
    return Table(file, columns, True, class_names)


def _image(table: Table, key: str, row: Mapping[str, Any], settings: ImagesSettings) -> Item:
    image, number, names = row[table.columns.file], row.get(table.columns.label), table.class_names
    data = image.get("bytes") if is_object(image) else image
    try:
        label, split, group = table.columns.read(row, table.file.name, settings)
        if names and settings.several and number is not None:
            label = settings.targets.text(number, names)
    except ValueError as error:
        return Item(key, b"", reason=str(error))
    if not isinstance(data, bytes):
        return Item(key, b"", label, split, group, "holds no image's bytes")
    if names and isinstance(number, int):
        if not 0 <= number < len(names):
            return Item(key, data, None, split, group, f"has the label {number} vs 0 to {len(names) - 1}")
        label = names[number]
    return Item(key, data, label, split, group)


def _schema(file: Found) -> pa.Schema:
    with opened(file, "Parquet"), pq.ParquetFile(file.path) as parquet:
        return parquet.schema_arrow


def _parquet_rows(file: Found, columns: Sequence[str], at_once: int = _ROWS) -> Iterator[dict[str, Any]]:
    """Yield the values of some columns, row by row; an empty name gives None."""
    wanted = [column for column in columns if column]
    with opened(file, "Parquet"), pq.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False) as parquet:
        for batch in parquet.iter_batches(at_once, columns=wanted, use_threads=False):
            yield from batch.to_pylist()


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _holds_bytes(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _class_names(file: Found, schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Return a ClassLabel's names from the schema's metadata, as ``datasets`` writes them; empty if missing."""
    with reading(file.path, "Parquet with metadata of Hugging Face", "write it again"):
        said: Any = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
    for key in ("info", "features", label):
        said = said.get(key) if is_object(said) else None
    said = said.get("feature", said) if is_object(said) else None  # a list has the feature of its members
    said = said.get("names") if is_object(said) else None
    if said is not None and not (isinstance(said, list) and all(isinstance(name, str) for name in said)):
        raise SourceError(f"{file.path}: the names of its classes are not a list of texts; write the file again")
    return tuple(said or ())


def _header(table: Found) -> Sequence[str]:
    if table.ends(PARQUET):
        return _schema(table).names
    if table.ends(".csv", ".tsv"):
        return next((names for _, names in _lines(table)), [])
    return list(next((row.values for row in _objects(table)), {}))


def _rows(table: Found, columns: Sequence[str]) -> Iterator[Row]:
    if table.ends(PARQUET):
        for number, values in enumerate(_parquet_rows(table, columns)):
            yield Row(f"{table.name}[{number}]", values)
    elif table.ends(".csv", ".tsv"):
        lines = _lines(table)
        _, names = next(lines)
        for number, values in lines:
            wrong = f"has {len(values)} values vs {len(names)} columns" if len(values) != len(names) else ""
            yield Row(f"{table.name}:{number}", dict(zip(names, values, strict=False)), wrong)
    else:
        yield from _objects(table)


def _lines(table: Found) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty lines of a CSV or TSV file, with their numbers."""
    with (
        opened(table, "a table", "save it as CSV in UTF-8"),
        Path(table.path).open(encoding="utf-8-sig", newline="") as stream,
    ):
        first = stream.readline(bounds.CLASS_FILE_BYTES)
        if len(first) == bounds.CLASS_FILE_BYTES:
            raise SourceError(f"{table.path}: the first line has more than {len(first):,} letters; give a table")
        stream.seek(0)
        mark = "\t" if table.ends(".tsv") else max(_MARKS, key=first.count)
        lines = csv.reader(stream, delimiter=mark, skipinitialspace=True, strict=True)
        for values in lines:
            if any(map(str.strip, values)):
                yield lines.line_num, values


def _objects(table: Found) -> Iterator[Row]:
    """Yield the non-empty lines of a JSON Lines file."""
    with opened(table, "JSON Lines"), Path(table.path).open("rb") as stream:
        number = 0
        while line := stream.readline(bounds.ENTRY_LETTERS):
            number += 1
            if line.strip():
                with reading(f"{table.path}: line {number}", "JSON", "correct the line"):
                    values = json.loads(line)
                if not is_object(values):
                    raise SourceError(
                        f"{table.path}: line {number} is {shortened(values)} vs an object; correct the line"
                    )
                yield Row(f"{table.name}:{number}", values)


def _repeated(
    where: str, items: Iterable[Item], hashes: npt.NDArray[np.int64], files: int, allowed: float
) -> dict[str, list[Item]]:
    """Return the rows of files with several rows, by key; ``hashes`` are those of candidate keys.

    Raises:
        SourceError: too many files have several rows.
    """
    wanted, rows = set(hashes.tolist()), defaultdict[str, list[Item]](list)
    many = len(wanted) > max(1, allowed * files)
    for item in items if wanted else ():
        if hash(item.key) in wanted and (not many or not rows or item.key in rows):
            rows[item.key].append(item)
    if many:
        [(key, same)] = rows.items()
        raise SourceError(
            f"{where}: {len(wanted):,} of {files:,} files have several rows vs {allowed:.0%} at most "
            f"({printable(key)} has {len(same)}, with {_labels(same, ', ')}): these are several labels of an image, or "
            "of objects in it, and Podline reads one class for each whole image; give a table with one row for each "
            "image"
        )
    return rows


def _united(items: Iterable[Item], repeated: Mapping[str, Sequence[Item]], settings: ImagesSettings) -> Iterator[Item]:
    """Yield one item per file, with the labels of all its rows; items with a reason stay unchanged."""
    before = set[str]()
    for item in items:
        same = () if item.reason else repeated.get(item.key, ())
        if not same:
            yield item
        elif item.key not in before:
            before.add(item.key)
            splits = sorted({shortened(one.split) for one in same})
            reason = f"is listed as of {' and of '.join(splits)}" if len(splits) > 1 else ""
            names = [name for one in same for name in json.loads(one.label or "[]")]
            label = settings.targets.text(names) if any(one.label for one in same) else None
            yield item._replace(label=label, reason=reason)


def _with_repeated(items: Iterable[Item], repeated: Mapping[str, Sequence[Item]]) -> Iterator[Item]:
    """Yield the items; those whose file has several rows get a reason."""
    before = set[str]()
    for item in items:
        same = repeated.get(item.key, ())
        reason = item.reason
        if not reason and len({(one.label, one.split) for one in same}) > 1:
            reason = f"is listed as {_labels(same, ' and as ')}"
        elif not reason and item.key in before:
            reason = "is listed before"
        if same:
            before.add(item.key)
        yield item._replace(reason=reason)


def _labels(items: Sequence[Item], between: str) -> str:
    return between.join(sorted({shortened(item.label) for item in items})[:3])
