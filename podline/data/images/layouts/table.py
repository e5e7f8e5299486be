"""A table of file names and labels: CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

from podline.data import bounds
from podline.data.images.columns import Columns, Labels, class_columns, text_of
from podline.data.images.items import Item, Place
from podline.data.images.layout import Layout, opened
from podline.data.images.layouts.parquet import ENDING as PARQUET
from podline.data.images.layouts.parquet import holding_images, parquet_rows, parquet_schema
from podline.data.images.listing import IMAGE_ENDINGS, Files, Found
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import parsing
from podline.data.shown import printable, shortened
from podline.errors import SourceError
from podline.frozen import is_object

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", PARQUET)
_MARKS = ",;\t|"
# A table in which more than this share of the files have several rows is about something else: boxes of objects, say.
_MAX_REPEATED = 0.1


class Row(NamedTuple):
    """A row: its number or place, and its values by column; or why it has none."""

    key: str
    values: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Tables(Layout):
    """See :class:`podline.data.images.layout.Layout`; it also reads every file that a table names.

    Attributes:
        columns: of each table.
        named: what may be named in them, by its path.
        settings: of the conversion.
    """

    columns: Sequence[Columns]
    named: Mapping[str, Found]
    settings: ImagesSettings

    accepts = "a table of files and labels (CSV, TSV, JSON Lines, Parquet)"
    opens = ENDINGS
    unread = "is not named by the table"

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return those tables that name files and labels.

        Raises:
            SourceError: there are tables, and none does.
        """
        tables, columns, problems = [], [], []
        for table in files.ending(*ENDINGS):
            try:
                if table.name.endswith(PARQUET) and holding_images(parquet_schema(table)):
                    continue
                columns.append(_columns(table, settings))
                tables.append(table)
            except SourceError as error:
                problems.append(error)
        if problems and not tables:
            raise problems[0]
        return cls(tables, columns, {file.name: file for file in files.around}, settings) if tables else None

    @property
    def words(self) -> str:
        """Which tables, and which columns."""
        tables = ", ".join(printable(table.name) for table in self.read[:3])
        more = f" and {len(self.read) - 3} more" if len(self.read) > 3 else ""
        columns = ", ".join(printable(column) for column in self.columns[0] if column)
        return f"table, {tables}{more}, columns {columns}"

    @property
    def paths(self) -> frozenset[str]:
        """The tables, and every file that is named."""
        named = (self.named.get(item.key) for item in self._items)
        return frozenset(file.path for file in (*self.read, *named) if file)

    def items(self) -> Iterator[Item]:
        """Every row."""
        return iter(self._items)

    @cached_property
    def _images(self) -> dict[str, list[Found]]:
        """Images by their paths without the ending."""
        found: dict[str, list[Found]] = defaultdict(list)
        for file in self.named.values():
            if file.is_image:
                found[str(PurePosixPath(file.name).with_suffix(""))].append(file)
        return found

    @cached_property
    def _items(self) -> list[Item]:
        tables = zip(self.read, self.columns, strict=True)
        items = [item for table, columns in tables for item in self._items_of(table, columns)]
        return _with_repeated(self.read[0].path, items)

    def _items_of(self, table: Found, columns: Columns) -> list[Item]:
        labels, items = Labels(), []
        for row in _rows(table, columns):
            labels.add(row.values.get(columns.label))
            items.append(self._item(table, columns, row))
        labels.refuse_unclear(table.path, columns.label, self.settings)
        return items

    def _item(self, table: Found, columns: Columns, row: Row) -> Item:
        if row.reason:
            return Item(row.key, b"", reason=row.reason)
        try:
            label, split, group = columns.read(row.values, table.name)
            name = text_of(row.values.get(columns.file))
        except ValueError as error:
            return Item(row.key, b"", reason=str(error))
        if name is None:
            return Item(row.key, b"", label, reason="names no file")
        return self._item_of(table, name, Item("", b"", label, split, group))

    def _item_of(self, table: Found, name: str, item: Item) -> Item:
        folder = "" if self.settings.images else posixpath.dirname(table.name)
        path = posixpath.normpath(posixpath.join(folder, name.replace("\\", "/")))
        file = self.named.get(path)
        if file is None and PurePosixPath(path).suffix.lower() not in IMAGE_ENDINGS:  # an ID
            found = self._images.get(path, [])
            if len(found) > 1:
                return item._replace(key=path, reason=f"may be {found[0].name} or {found[1].name}")
            file = found[0] if found else None
            path = file.name if file else path
        if path.startswith(("../", "/")):
            return item._replace(key=path, reason="lies outside of the source")
        if file is None:
            return item._replace(key=path, reason="there is no such file")
        if file.bytes < 0:
            return item._replace(key=path, reason="is no file that can be read")
        return item._replace(key=path, data=Place(file.path))


def _columns(table: Found, settings: ImagesSettings) -> Columns:
    """Return a table's columns.

    Raises:
        SourceError: it has none of files or of labels, or its labels are of something else.
    """
    header = _header(table)
    return class_columns(table.path, header, settings, lambda: (row.values for row in _rows(table, header)))


def _header(table: Found) -> Sequence[str]:
    if table.name.endswith(PARQUET):
        return parquet_schema(table).names
    if table.name.endswith((".csv", ".tsv")):
        return next((names for _, names in _lines(table)), [])
    return list(next((row.values for row in _objects(table)), {}))


def _rows(table: Found, columns: Sequence[str]) -> Iterator[Row]:
    if table.name.endswith(PARQUET):
        wanted = [name for name in columns if name]
        for number, values in enumerate(parquet_rows(table, wanted)):
            yield Row(f"{table.name}[{number}]", values)
    elif table.name.endswith((".csv", ".tsv")):
        lines = _lines(table)
        _, names = next(lines)
        for number, values in lines:
            wrong = f"has {len(values)} values vs {len(names)} columns" if len(values) != len(names) else ""
            yield Row(f"{table.name}:{number}", dict(zip(names, values, strict=False)), wrong)
    else:
        yield from _objects(table)


def _lines(table: Found) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a CSV or TSV file that are not empty, with their numbers."""
    with (
        opened(table, "a table", "save it as CSV in UTF-8"),
        Path(table.path).open(encoding="utf-8-sig", newline="") as stream,
    ):
        first = stream.readline(bounds.CLASS_FILE_BYTES)
        if len(first) == bounds.CLASS_FILE_BYTES:
            raise SourceError(f"{table.path}: the first line has more than {len(first):,} letters; give a table")
        stream.seek(0)
        mark = "\t" if table.name.endswith(".tsv") else max(_MARKS, key=first.count)
        lines = csv.reader(stream, delimiter=mark, skipinitialspace=True, strict=True)
        for values in lines:
            if values:
                yield lines.line_num, values


def _objects(table: Found) -> Iterator[Row]:
    """Yield the lines of a JSON Lines file that are not empty."""
    with opened(table, "JSON Lines"), Path(table.path).open("rb") as stream:
        number = 0
        while line := stream.readline(bounds.ENTRY_LETTERS):
            number += 1
            if line.strip():
                with parsing(f"{table.path}: line {number}", "JSON", "mend the line"):
                    values = json.loads(line)
                if not is_object(values):
                    raise SourceError(f"{table.path}: line {number} is {shortened(values)} vs an object; mend the line")
                yield Row(f"{table.name}:{number}", values)


def _with_repeated(where: str, items: Sequence[Item]) -> list[Item]:
    """Return the items with a reason at those whose file has several rows.

    Raises:
        SourceError: that is so of too many files.
    """
    rows: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        rows[item.key].append(item)
    repeated = {key: same for key, same in rows.items() if len(same) > 1}
    if len(repeated) > max(1, _MAX_REPEATED * len(rows)):
        key, same = next(iter(repeated.items()))
        raise SourceError(
            f"{where}: {len(repeated):,} of {len(rows):,} files have several rows vs {_MAX_REPEATED:.0%} at most "
            f"({printable(key)} has {len(same)}, with {_labels(same, ', ')}): these are several labels of an image, or "
            "of objects in it, and Podline reads one class for each whole image; give a table with one row for each "
            "image"
        )
    return [item if item.reason else item._replace(reason=_repeats(item, rows[item.key])) for item in items]


def _repeats(item: Item, same: Sequence[Item]) -> str:
    if len({(one.label, one.split) for one in same}) > 1:
        return f"is listed as {_labels(same, ' and as ')}"
    return "" if item is same[0] else "is listed before"


def _labels(items: Sequence[Item], between: str) -> str:
    return between.join(sorted({shortened(item.label) for item in items})[:3])
