"""Tables of labels beside file names, or beside the images themselves: CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.base.plurals import first_few
from podline.data.images.columns import (
    NONE,
    Columns,
    LabelColumn,
    NoColumnError,
    class_columns,
    known_columns,
    only_member,
    text_of,
    value_in,
)
from podline.data.images.items import Item, Place, split_in_name
from podline.data.images.layout import Layout, is_placeholder
from podline.data.images.listing import Files, ListedFile, Listing, Names
from podline.data.images.settings import ImagesSettings
from podline.data.images.table_rows import (
    ENDINGS,
    PARQUET,
    Row,
    header_of,
    holds_bytes,
    parquet_rows,
    rows_of,
    schema_of,
)
from podline.data.places import IMAGE_ENDINGS
from podline.data.rawfiles import reading
from podline.data.shown import printable, shortened
from podline.data.texts import cleaned, cleaned_path

# Above this share of files with several rows, a table describes something else, for example boxes of objects.
_MAX_REPEATED = 0.1
_IMAGES = 64  # rows with images that are read at once
_LEAST = 60  # bytes of an image's file
_METADATA = b"huggingface"
# Tables whose labels are no truth, by their names: sample_submission.csv, predictions_2.csv, test-preds.csv.
_NO_TRUTH = re.compile("submission|predict(?:ion|ed)|pseudo|(?<![a-z])(?:sample_?sub|preds?)(?![a-z])")
_PREDICTIONS = "has labels that are no truth, by its name; if they are, give the table itself as the source"
_PASSED = "is not read, nor are the images that it alone names"


class ClassTable(NamedTuple):
    """A table of images and their classes.

    Attributes:
        file: the table's file.
        columns: the roles of its columns.
        has_images: whether the column of files holds the images themselves.
        class_names: class names by label, if the file has them.
        passed: why its labels are not read; empty if they are.
    """

    file: ListedFile
    columns: Columns
    has_images: bool = False
    class_names: tuple[str, ...] = ()
    passed: str = ""

    @property
    def series(self) -> str:
        """Return what the names of a table's parts have in common: the split, or the name without numbers."""
        return split_in_name(self.file.name) or re.sub("[0-9]+", "", posixpath.basename(self.file.name))

    def read(self, row: Mapping[str, Any], settings: ImagesSettings) -> tuple[str | None, str, str]:
        """Return label, split and group of a row; see :meth:`Columns.read`."""
        label, split, group = self.columns.read(row, self.file.name, settings)
        if self.class_names:
            value = value_in(row, self.columns.label)
            number = value if settings.several else only_member(value)
            if number is not None and (settings.several or isinstance(number, int)):
                label = settings.targets.text(number, self.class_names)
        return label, split, group


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
        for line in self.file:
            key, data, *rest = json.loads(line)
            yield Item(key, Place(*data) if data else b"", *rest)


@dataclass(frozen=True)
class Tables(Layout):
    """The layout of tables; it also reads every file that a table names.

    Attributes:
        tables: the tables with labels; either all hold images, or all hold file names.
        passed: the tables without labels, whose files are not read.
        around: the files that they may name.
        settings: settings of the conversion.
        said: the values of labels by series of tables, complete after all items.
    """

    tables: Sequence[ClassTable]
    passed: Sequence[ClassTable]
    around: Listing
    settings: ImagesSettings
    said: dict[str, LabelColumn] = field(default_factory=lambda: defaultdict(LabelColumn), init=False, compare=False)

    accepts = "a table of labels with files or images (CSV, TSV, JSON Lines, Parquet)"
    opens = ENDINGS
    unread = "is not named by the table"

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the tables that name labels and files, or that hold images.

        Raises:
            SourceError: no table has labels, or a table with images is damaged or differs from the others.
        """
        found, problems = list[ClassTable](), list[str]()
        for file in files.ending(*ENDINGS):
            images = _image_columns(file, settings) if file.ends(PARQUET) else []
            try:
                found.append(_table(file, images, settings, is_asked=file.path == files.place))
            except SourceError as error:
                if images:
                    raise
                problems.append(str(error))
        tables = [table for table in found if not table.passed]
        tables = [table for table in tables if table.has_images] or tables
        passed = [table for table in found if table.passed]
        problems += [f"{table.file.path} {table.passed}" for table in passed]
        if problems and not tables:
            raise SourceError("; ".join(problems[:2]))
        for one, other in pairwise(tables):
            if one.has_images and (one.columns.names, one.class_names) != (other.columns.names, other.class_names):
                raise SourceError(
                    f"{other.file.path} has other columns or class names than {one.file.path}; give one data set"
                )
        read = [table.file for table in (*tables, *passed)]
        return cls(read, tables, passed, files.around, settings) if tables else None

    @property
    def words(self) -> str:
        """Describe the tables and columns."""
        files = first_few([printable(table.file.name) for table in self.tables], 3)
        images = " of images" if self.tables[0].has_images else ""
        return f"table{images}, {files}, {self.tables[0].columns.words}"

    @property
    def notes(self) -> Sequence[str]:
        """Return a line on each table that is passed over, on joined tables, and on tables with one label."""
        lines = [f"{printable(table.file.name)} {_PASSED}: it {table.passed}" for table in self.passed]
        names = {table.series: printable(table.file.name) for table in self.tables}
        joined = [name for series, name in names.items() if series != split_in_name(name)]
        if joined[1:] and not (self.tables[0].columns.split or self.tables[0].columns.flags):
            lines.append(f"the tables {joined[0]} and {joined[1]} are read as one; if one is no truth, give the other")
        for series, found in self.said.items():
            if len(names) > 1 and not is_placeholder(found.only):
                lines.append(f"{names[series]} has one label only, {shortened(found.only)}; is it a placeholder?")
        return lines

    def reads(self, file: ListedFile, /) -> bool:
        """Return whether a file is a table, or is named in one."""
        if super().reads(file) or self.tables[0].has_images:
            return super().reads(file)
        return any(self._listed.named[at] for at, _ in self._by_path.find(file.path))

    def items(self) -> Iterator[Item]:
        """Yield every row."""
        if not self.tables[0].has_images:
            yield from _joined(self._listed.items(), self._listed.repeated, self.settings)
            return
        for table in self.tables:
            column, some = table.columns.label, self.said[table.series]
            for number, row in enumerate(parquet_rows(table.file, table.columns.names, _IMAGES)):
                if not (table.class_names and isinstance(row.get(column), int)):  # else it is the number of a class
                    some.add(value_in(row, column))
                yield _image(table, f"{table.file.name}[{number}]", row, self.settings)
            some.refuse_unclear(table.file.path, column, self.settings)

    @cached_property
    def _by_name(self) -> Names:
        return Names(self.around, lambda file: cleaned_path(file.name))

    @cached_property
    def _by_path(self) -> Names:
        return Names(self.around, lambda file: file.path)

    @cached_property
    def _by_stem(self) -> Names:
        """Index the images by path without the ending."""
        return Names(
            self.around, lambda file: cleaned_path(file.name[: file.name.rfind(".")]) if file.is_image else None
        )

    @cached_property
    def _listed(self) -> _Listed:
        named, keys = np.zeros(len(self.around), np.bool_), array("q")
        file = tempfile.NamedTemporaryFile("w+", delete=False)  # noqa: SIM115 (closed with this object)
        Path(file.name).unlink()  # at once, since this process may be killed
        for table in self.tables:
            column, some = table.columns.label, self.said[table.series]
            for row in rows_of(table.file, table.columns.names):
                some.add(value_in(row.values, column))
                at, item = self._item(table, row)
                named[at] |= at >= 0
                keys.append(hash(item.key))
                file.write(f"{json.dumps([item.key, item.data or None, *item[2:]])}\n")
            some.refuse_unclear(table.file.path, column, self.settings)
        for table in (table for table in self.passed if table.columns.file and not table.has_images):
            for row in rows_of(table.file, table.columns.names):
                at, _ = self._item(table, row)
                named[at] |= at >= 0
        values, counts = np.unique(np.frombuffer(keys, np.int64), return_counts=True)
        listed, allowed = _Listed(file, named, {}), 1.0 if self.settings.several else _MAX_REPEATED
        repeated = _repeated(self.read[0].path, listed.items(), values[counts > 1], len(values), allowed)
        return listed._replace(repeated=repeated)

    def _item(self, table: ClassTable, row: Row) -> tuple[int, Item]:
        """Return a row's item, and the number of the file that it names, or -1."""
        if row.reason:
            return -1, Item(row.key, b"", reason=row.reason)
        try:
            label, split, group = table.read(row.values, self.settings)
            name = text_of(value_in(row.values, table.columns.file))
        except ValueError as error:
            return -1, Item(row.key, b"", reason=str(error))
        if name is None:
            return -1, Item(row.key, b"", label, reason="names no file")
        path, files = self._named(table, name.replace("\\", "/"))
        if reason := _unusable(path, [file for _, file in files]):
            return files[0][0] if len(files) == 1 else -1, Item(path, b"", label, split, group, reason)
        [(at, file)] = files
        return at, Item(file.name, Place(file.path), label, split, group)

    def _named(self, table: ClassTable, name: str) -> tuple[str, list[tuple[int, ListedFile]]]:
        """Return the path that a table names, and the files there with their numbers, or those with another ending."""
        inside = self.around.relative(name)
        folder = "" if self.settings.images or inside != name else posixpath.dirname(table.file.name)
        path = posixpath.normpath(posixpath.join(folder, inside))
        files = self._by_name.find(cleaned_path(path))
        if not files and PurePosixPath(path).suffix.lower() not in IMAGE_ENDINGS:
            files = self._by_stem.find(cleaned_path(path))
        return path, [each for each in files if each[1].name == path] or files


def _unusable(path: str, files: Sequence[ListedFile]) -> str:
    """Return why none of the files of a path or ID can be read; empty if one can."""
    if len(files) > 1:
        return f"may be {files[0].name} or {files[1].name}"
    if path.startswith(("../", "/")):
        return "lies outside of the source"
    if not files:
        return "there is no such file"
    return "" if files[0].bytes >= 0 else "cannot be read as a file"


def _table(file: ListedFile, images: Sequence[str], settings: ImagesSettings, *, is_asked: bool) -> ClassTable:
    """Return a table of names, or a Parquet file with images, as Hugging Face's datasets write them.

    Args:
        file: the table.
        images: its columns of images.
        settings: settings of the conversion.
        is_asked: whether the table itself is the source, so that its labels are read whatever its name.

    Raises:
        SourceError: the columns of files or labels are missing, or the labels are not classes.
    """
    header, image = header_of(file), images[0] if images else ""
    if images[1:]:
        raise SourceError(
            f"{file.path}: images may be in {', '.join(images)}; say in which by --set conversion.file_column=NAME"
        )
    unlabelled = settings.model_copy(update={"label_column": NONE})
    if not is_asked and _NO_TRUTH.search(posixpath.basename(file.name).lower()):
        columns = known_columns(file.path, header, unlabelled, image)
        return ClassTable(file, columns, bool(images), passed=_PREDICTIONS)
    others = [name for name in header if name != image]
    rows = (row.values for row in rows_of(file, others))
    try:
        columns = class_columns(file.path, header, settings, lambda: rows, image)
    except NoColumnError as error:
        columns = known_columns(file.path, header, unlabelled, image)
        if is_asked or not columns.file:
            raise
        return ClassTable(file, columns, bool(images), passed=str(error).removeprefix(f"{file.path} "))
    return ClassTable(file, columns, bool(images), _class_names(file, columns.label) if images else ())


def _image_columns(file: ListedFile, settings: ImagesSettings) -> list[str]:
    """Return the columns of a Parquet file that hold images, or the chosen one."""
    fitting = [field.name for field in schema_of(file) if holds_bytes(field.type)]
    found = [name for name in fitting if _are_images(file, name)]
    return [settings.file_column] if settings.file_column in found else found


def _are_images(file: ListedFile, column: str) -> bool:
    """Return whether a column holds images, not texts in bytes, as of Impala and Spark, or short lists of numbers."""
    values = (row[column] for row in parquet_rows(file, [column], _IMAGES))
    first = next((value for value in values if value is not None), {})
    data = _bytes_of(first)
    try:
        return is_object(first) or (data is not None and len(data) >= _LEAST and not data.decode().isprintable())
    except UnicodeDecodeError:
        return True


def _bytes_of(image: Any) -> bytes | None:
    """Return the bytes of an image's file, which may be a list of numbers or in an object; None if there are none."""
    data: Any = image.get("bytes") if is_object(image) else image
    with contextlib.suppress(ValueError, TypeError):
        return data if isinstance(data, bytes) else bytes(number % 256 for number in data)
    return None


def _image(table: ClassTable, key: str, row: Mapping[str, Any], settings: ImagesSettings) -> Item:
    data = _bytes_of(value_in(row, table.columns.file))
    try:
        label, split, group = table.read(row, settings)
    except ValueError as error:
        return Item(
            key, data if isinstance(data, bytes) else b"", None, split_in_name(table.file.name), reason=str(error)
        )
    if data is None:
        return Item(key, b"", label, split, group, "holds no image's bytes")
    return Item(key, data, label, split, group)


def _class_names(file: ListedFile, label: str) -> tuple[str, ...]:
    """Return a ClassLabel's names from the schema's metadata, as ``datasets`` writes them; empty if missing."""
    with reading(file.path, "Parquet with metadata of Hugging Face", "write it again"):
        said: Any = json.loads((schema_of(file).metadata or {}).get(_METADATA, b"{}"))
    for key in ("info", "features", label):
        said = said.get(key) if is_object(said) else None
    said = said.get("feature", said) if is_object(said) else None  # a list has the feature of its members
    said = said.get("names") if is_object(said) else None
    if said is not None and not (isinstance(said, list) and all(isinstance(name, str) for name in said)):
        raise SourceError(f"{file.path}: the names of its classes are not a list of texts; write the file again")
    return tuple(map(cleaned, said or ()))


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


def _joined(items: Iterable[Item], repeated: Mapping[str, Sequence[Item]], settings: ImagesSettings) -> Iterator[Item]:
    """Yield the items; those of a file with several rows get a reason, or are one with all labels if it may have them.

    Items with a reason stay unchanged.
    """
    before = set[str]()
    for item in items:
        same = () if item.reason else repeated.get(item.key, ())
        splits, is_again = sorted({shortened(one.split) for one in same}), item.key in before
        before |= {item.key} if same else set()
        if not same:
            yield item
        elif not settings.several:
            differs = len({(one.label, one.split) for one in same}) > 1
            reason = f"is listed as {_labels(same, ' and as ')}" if differs else "is listed before" if is_again else ""
            yield item._replace(reason=reason)
        elif not is_again:
            reason = f"is listed as of {' and of '.join(splits)}" if len(splits) > 1 else ""
            names = [name for one in same for name in json.loads(one.label or "[]")]
            label = settings.targets.text(names) if any(one.label for one in same) else None
            yield item._replace(label=label, reason=reason)


def _labels(items: Sequence[Item], between: str) -> str:
    return between.join(sorted({shortened(item.label) for item in items})[:3])
