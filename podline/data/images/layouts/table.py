"""Tables of labels with file names, or with the images themselves: CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Self

from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.base.plurals import first_few, plural
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
    ROWS_AT_ONCE,
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

# Share of files with several rows above which a table describes something else, for example boxes of objects.
_MAX_REPEATED = 0.1
_IMAGES = 64  # rows with images that are read at a time
_LEAST = 60  # fewest bytes of an image file
_METADATA = b"huggingface"
# Names of tables with predicted labels: sample_submission.csv, predictions_2.csv, test-preds.csv.
_NO_TRUTH = re.compile("submission|predict(?:ion|ed)|pseudo|(?<![a-z])(?:sample_?sub|preds?)(?![a-z])")
_PREDICTIONS = "has predicted labels, judged by its name; if they are true, give the table itself as the source"
_BESIDE = "names files, but another table has the images themselves"
_PASSED = "is not read, nor are images that no other table names"
_NO_FILE = "there is no such file"


class ClassTable(NamedTuple):
    """A table of images and their classes.

    Attributes:
        file: the file of the table.
        columns: the roles of the table's columns.
        has_images: whether the column of files contains the images themselves.
        class_names: names of the classes by label; empty if the file has none.
        passed: why the table's labels are not read; empty if they are.
    """

    file: ListedFile
    columns: Columns
    has_images: bool = False
    class_names: tuple[str, ...] = ()
    passed: str = ""

    @property
    def series(self) -> str:
        """Return what all parts of a table have in common: the split in the name, or the name without digits."""
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


@dataclass(frozen=True)
class Tables(Layout):
    """The layout of tables, and of the files that they name.

    Attributes:
        tables: the tables with labels; either all contain images, or all contain file names.
        passed: the tables without usable labels; the files that only they name are not read.
        unusable: (name, reason) of each table that is damaged, or whose labels are not classes.
        around: the files that the tables may name.
        settings: settings of the conversion.
        said: series of tables → the values in their label columns, complete after the last item.
    """

    tables: Sequence[ClassTable]
    passed: Sequence[ClassTable]
    unusable: Sequence[tuple[str, str]]
    around: Listing
    settings: ImagesSettings
    said: dict[str, LabelColumn] = field(default_factory=lambda: defaultdict(LabelColumn), init=False, compare=False)

    accepts = "a table of labels with files or images (CSV, TSV, JSON Lines, Parquet)"
    opens = ENDINGS
    unread = "is not named by the table"

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the tables that have labels and files, or those that contain images; None if there is no table.

        Raises:
            SourceError: no table has usable labels, a Parquet file cannot be read, or tables with images differ in
                their columns.
        """
        found, problems, unusable = list[ClassTable](), list[str](), list[tuple[str, str]]()
        columns = _image_columns(files, settings)
        for file in files.ending(*ENDINGS):
            images = columns.get(file, [])
            try:
                found.append(_table(file, images, settings, is_asked=file.path == files.place))
            except SourceError as error:
                if images:
                    raise
                problems.append(str(error))
                if not isinstance(error, NoColumnError):  # other tables may be beside the images
                    unusable.append((file.name, str(error).removeprefix(file.path).lstrip(": ")))
        tables = [table for table in found if not table.passed]
        tables = [table for table in tables if table.has_images] or tables
        passed = [table if table.passed else table._replace(passed=_BESIDE) for table in found if table not in tables]
        problems += [f"{table.file.path} {table.passed}" for table in passed]
        if problems and not tables:
            raise SourceError("; ".join(problems[:2]))
        for one, other in pairwise(tables):
            if one.has_images and (one.columns.names, one.class_names) != (other.columns.names, other.class_names):
                raise SourceError(
                    f"{other.file.path} has other columns or class names than {one.file.path}; give one data set"
                )
        read = [table.file for table in (*tables, *passed)]
        return cls(read, tables, passed, unusable, files.around, settings) if tables else None

    @property
    def words(self) -> str:
        """Describe the tables, and the columns of the first."""
        files = first_few([printable(table.file.name) for table in self.tables], 3)
        images = " of images" if self.tables[0].has_images else ""
        return f"table{images}, {files}, {self.tables[0].columns.words}"

    @property
    def notes(self) -> Sequence[str]:
        """Return a line for each table that is not read, for tables read as one, and for tables with a single label."""
        lines = [f"{printable(table.file.name)} {_PASSED}: it {table.passed}" for table in self.passed]
        lines += [f"{printable(name)} {_PASSED}: {problem}" for name, problem in self.unusable]
        names = {table.series: printable(table.file.name) for table in self.tables}
        joined = [name for series, name in names.items() if series != split_in_name(name)]
        if joined[1:] and not (self.tables[0].columns.split or self.tables[0].columns.flags):
            lines.append(
                f"the tables {joined[0]} and {joined[1]} are read as one; if one has no true labels, give the other"
            )
        for series, found in self.said.items():
            if len(names) > 1 and not is_placeholder(found.only):
                lines.append(f"{names[series]} has only one label, {shortened(found.only)}; is it a placeholder?")
        return lines

    def reads(self, file: ListedFile, /) -> bool:
        """Return whether a file is a table that is read or passed over, or is named in one."""
        if super().reads(file) or self.tables[0].has_images:
            return super().reads(file)
        inside = self.around.relative(file.path)
        is_of_others = inside == file.path and hash(PurePosixPath(file.name).stem) in self._passed_stems
        return is_of_others or hash(inside) in self._rows

    def items(self) -> Iterator[Item]:
        """Yield an item for each row of each table, or for each file with all its labels if images may have several.

        Labels are checked before the first item; in tables with images, after the last.
        """
        if self.tables[0].has_images:
            yield from self._items(self.tables, self.said)
            self._check_labels()
        else:
            yield from _joined(self._items(self.tables), self._repeated(), self.settings)

    @cached_property
    def _by_name(self) -> Names:
        return Names(self.around, lambda file: cleaned_path(file.name))

    @cached_property
    def _by_stem(self) -> Names:
        """Index the image files by path without extension."""
        return Names(
            self.around, lambda file: cleaned_path(file.name[: file.name.rfind(".")]) if file.is_image else None
        )

    def _items(self, tables: Iterable[ClassTable], labels: Mapping[str, LabelColumn] | None = None) -> Iterator[Item]:
        """Yield the items of some tables; add the values of the label columns to ``labels``, by series."""
        for table in tables:
            at_once = _IMAGES if table.has_images else ROWS_AT_ONCE
            for row in rows_of(table.file, table.columns.names, at_once):
                value = value_in(row.values, table.columns.label)
                if labels is not None and not (table.class_names and isinstance(value, int)):  # an index of class_names
                    labels[table.series].add(value)
                yield self._image(table, row) if table.has_images else self._item(table, row)

    def _check_labels(self) -> None:
        for table in self.tables:
            self.said[table.series].refuse_unclear(table.file.path, table.columns.label, self.settings)

    @cached_property
    def _rows(self) -> Counter[int]:
        """Return hash of an item's key → number of rows in tables with labels; 0 for files that only others name.

        Raises:
            SourceError: labels are not classes, or no file of a row exists.
        """
        rows, absent, is_any_found = Counter[int](), "", False
        for item in self._items(self.tables, self.said):
            rows[hash(item.key)] += 1
            absent = absent or item.key
            is_any_found |= item.reason != _NO_FILE
        self._check_labels()
        if absent and not is_any_found:
            raise SourceError(
                f"{self.tables[0].file.path}: none of the {plural(rows.total(), 'file')} in its column "
                f"{self.tables[0].columns.file} exists, such as {printable(absent)}; {self._remedy(absent)}"
            )
        rows.update({hash(item.key): 0 for item in self._items(self._passed_names)})
        return rows

    def _remedy(self, absent: str) -> str:
        """Return the remedy for an absent file: to set the folder that has a file of this name, or to correct names."""
        names = {absent, posixpath.basename(absent)}
        for file in self.around:
            parts = PurePosixPath(file.name)
            tails = {str(PurePosixPath(*parts.parts[at:])): at for at in range(1, len(parts.parts))}
            tails |= {str(PurePosixPath(tail).with_suffix("")): at for tail, at in tails.items() if file.is_image}
            if at := min((tails[name] for name in names & {*tails}), default=0):
                return f"give --set conversion.images={posixpath.join(self.settings.images, *parts.parts[:at])}"
        return "correct these names, or set conversion.images to the folder of the images"

    @property
    def _passed_names(self) -> list[ClassTable]:
        """Return the tables of file names that are not read."""
        return [table for table in self.passed if table.columns.file and not table.has_images]

    @cached_property
    def _passed_stems(self) -> frozenset[int]:
        """Return hashes of the names, without folder and extension, that only tables without labels name.

        Their images may be outside of the folder ``conversion.images``.
        """
        return frozenset(hash(PurePosixPath(item.key).stem) for item in self._items(self._passed_names))

    def _repeated(self) -> dict[str, list[Item]]:
        """Return file → items for files with several rows.

        Raises:
            SourceError: too many files have several rows, and an image has one label.
        """
        counts = [count for count in self._rows.values() if count]
        wanted, allowed = sum(count > 1 for count in counts), 1.0 if self.settings.several else _MAX_REPEATED
        rows, many = defaultdict[str, list[Item]](list), wanted > max(1, allowed * len(counts))
        for item in self._items(self.tables) if wanted else ():
            if self._rows[hash(item.key)] > 1 and (not many or not rows or item.key in rows):
                rows[item.key].append(item)
        if many:
            [(key, same)] = rows.items()
            raise SourceError(
                f"{self.tables[0].file.path}: {wanted:,} of {len(counts):,} files have several rows vs {allowed:.0%} "
                f"at most ({printable(key)} has {len(same)}, with {_labels(same, ', ')}), so the rows are several "
                "labels of an image, or of objects in it, but Podline reads one class for each whole image; give a "
                "table with one row for each image"
            )
        return rows

    def _image(self, table: ClassTable, row: Row) -> Item:
        data = _bytes_of(value_in(row.values, table.columns.file))
        try:
            label, split, group = table.read(row.values, self.settings)
        except ValueError as error:
            return Item(row.key, data or b"", None, split_in_name(table.file.name), reason=str(error))
        return Item(row.key, data or b"", label, split, group, "has no image bytes" if data is None else "")

    def _item(self, table: ClassTable, row: Row) -> Item:
        unread = Item(row.key, b"", None, split_in_name(table.file.name), reason=row.reason)
        if row.reason:
            return unread
        try:
            label, split, group = table.read(row.values, self.settings)
            name = text_of(value_in(row.values, table.columns.file))
        except ValueError as error:
            return unread._replace(reason=str(error))
        if name is None:
            return Item(row.key, b"", label, split, group, "names no file")
        path, files = self._named(table, name.replace("\\", "/"))
        if reason := _unusable(path, files):
            return Item(files[0].name if len(files) == 1 else path, b"", label, split, group, reason)
        return Item(files[0].name, Place(files[0].path), label, split, group)

    def _named(self, table: ClassTable, name: str) -> tuple[str, list[ListedFile]]:
        """Return the path that a table names, and the files there; a path without an image's extension may get one."""
        inside = self.around.relative(name)
        folder = "" if self.settings.images or inside != name else posixpath.dirname(table.file.name)
        path = posixpath.normpath(posixpath.join(folder, inside))
        files = self._by_name.find(cleaned_path(path))
        if not files and PurePosixPath(path).suffix.lower() not in IMAGE_ENDINGS:
            files = self._by_stem.find(cleaned_path(path))
        return path, [file for file in files if file.name == path] or files


def _unusable(path: str, files: Sequence[ListedFile]) -> str:
    """Return why the file of a path or ID cannot be used; empty if exactly one readable file exists."""
    if len(files) > 1:
        return f"may be {files[0].name} or {files[1].name}"
    if path.startswith(("../", "/")):
        return "lies outside of the source"
    if not files:
        return _NO_FILE
    return "" if files[0].bytes >= 0 else "cannot be read as a file"


def _table(file: ListedFile, images: Sequence[str], settings: ImagesSettings, *, is_asked: bool) -> ClassTable:
    """Return a table of file names, or a Parquet file with images, such as Hugging Face's datasets write.

    Args:
        file: the table's file.
        images: the columns with images.
        settings: settings of the conversion.
        is_asked: whether the user gave the table itself as the source, so that its labels are read whatever its name.

    Raises:
        SourceError: the table cannot be read, a column of files or labels is missing, or the labels are not classes.
    """
    header, image = header_of(file), images[0] if images else ""
    if images[1:]:
        raise SourceError(
            f"{file.path}: {', '.join(images)} all have images; choose one by --set conversion.file_column=NAME"
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


def _image_columns(files: Files, settings: ImagesSettings) -> dict[ListedFile, list[str]]:
    """Return Parquet file → its columns with images; if the settings name one of them, only that column.

    A column without values counts if it has images in another file.
    """
    fitting = {
        file: {
            name: _are_images(file, name)
            for field in schema_of(file)
            if (name := cleaned(field.name)) and holds_bytes(field.type)
        }
        for file in files.ending(PARQUET)
    }
    known = {name for columns in fitting.values() for name, images in columns.items() if images}
    found = {
        file: [name for name, images in columns.items() if images or (images is None and name in known)]
        for file, columns in fitting.items()
    }
    given = settings.file_column
    return {file: [given] if given in columns else columns for file, columns in found.items()}


def _are_images(file: ListedFile, column: str) -> bool | None:
    """Return whether a column contains images, not texts stored as bytes (Impala, Spark) or short lists of numbers.

    The first value with bytes decides; None if there is none.
    """
    values = (row[column] for row in parquet_rows(file, [column], _IMAGES))
    value, data = next(((value, data) for value in values if (data := _bytes_of(value)) is not None), (None, None))
    if data is None:
        return None
    try:
        return is_object(value) or (len(data) >= _LEAST and not data.decode().isprintable())
    except UnicodeDecodeError:
        return True


def _bytes_of(image: Any) -> bytes | None:
    """Return the bytes of an encoded image, which may be a list of numbers or in an object; None if there are none."""
    data: Any = image.get("bytes") if is_object(image) else image
    with contextlib.suppress(ValueError, TypeError):
        return data if isinstance(data, bytes) else bytes(number % 256 for number in data)
    return None


def _class_names(file: ListedFile, label: str) -> tuple[str, ...]:
    """Return the names of a ClassLabel from the schema's metadata, written by ``datasets``; empty if there are none."""
    with reading(file.path, "Parquet with metadata of Hugging Face", "write it again"):
        said: Any = json.loads((schema_of(file).metadata or {}).get(_METADATA, b"{}"))
    for key in ("info", "features", label):
        said = said.get(key) if is_object(said) else None
    said = said.get("feature", said) if is_object(said) else None  # a list has the feature of its members
    said = said.get("names") if is_object(said) else None
    if said is not None and not (isinstance(said, list) and all(isinstance(name, str) for name in said)):
        raise SourceError(f"{file.path}: the names of its classes are not a list of texts; write the file again")
    return tuple(map(cleaned, said or ()))


def _joined(items: Iterable[Item], repeated: Mapping[str, Sequence[Item]], settings: ImagesSettings) -> Iterator[Item]:
    """Yield the items; join the rows of a file into one item with all labels, or give rows a reason.

    Rows are joined if an image may have several labels. Else rows that differ, and repetitions of equal rows, get a
    reason. Items with a reason stay unchanged.
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
            reason = f"is listed in the splits {' and '.join(splits)}" if len(splits) > 1 else ""
            names = [name for one in same for name in json.loads(one.label or "[]")]
            label = settings.targets.text(names) if any(one.label for one in same) else None
            yield item._replace(label=label, reason=reason)


def _labels(items: Sequence[Item], between: str) -> str:
    return between.join(sorted({shortened(item.label) for item in items})[:3])
