"""Detect a table's columns for file, label, split and group by their names; refuse labels that are not classes.

Labels are not classes of whole images if there are several per image, if they belong to boxes, or if most occur once.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np

from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.base.plurals import first_few
from podline.data.images.image_table import Texts
from podline.data.images.items import TESTED, TRAIN_NAMES, split_in_name
from podline.data.images.settings import MARKS, ImagesSettings
from podline.data.places import IMAGE_ENDINGS
from podline.data.shown import printable, shortened
from podline.data.sources.class_names import whole_numbers
from podline.data.texts import cleaned, literal

_KNOWN = {
    "file": ("filename", "file", "image", "path", "imagepath", "filepath", "imagefile", "imagename", "img"),
    "label": ("label", "labels", "class", "classname", "category", "target"),
    "split": ("split", "subset", "partition"),
    "group": ("group", "groupid"),
}
_IDS = ("imageid", "imgid", "id")  # columns of files if no other column fits
NONE = "none"
"""The value of a column setting by which no column is read for that role."""
_READ = "Podline reads one class for each whole image"
_ALLOW = "--set conversion.labels_are_classes=true"

# Columns of zeros and ones that mark the rows of a split, such as is_valid of fastai; "valid" alone may mean usable.
_FLAG = re.compile(
    "(?:is|in)(train|training|test|testing|val|valid|validation|dev)(?:image|img|set|split|data|sample)?"
    "|(?:is|in)?(holdout|heldout)(?:set|split)?"
)
# Columns of boxes and outlines, without blanks and underscores; a group of corner columns must be complete.
_BOXES = {"bbox", "bboxes", "box", "boxes", "boundingbox", "boundingboxes"}
_BOXES |= {"objects", "annotations", "segmentation", "polygon"}
_CORNERS = (
    *("xmin ymin", "minx miny", "x1 y1", "x0 y0", "left top", "xcenter ycenter", "centerx centery", "cx cy"),
    *("bboxx bboxy", "bboxxmin bboxymin", "bboxx1 bboxy1", "x y w h", "x y width height"),
)
_JOINING = MARKS[:2]  # separators of several labels; a comma may also occur in a class name
_MOST_LISTS = 0.1  # largest share of labels that are lists; up to it, only those images are left out
_FEW = 20  # with at most this number of labels, any number of them may occur once
_BITS = {**dict.fromkeys(("0", "false"), False), **dict.fromkeys(("1", "true"), True)}
ROWS = 200
"""Columns of zeros and ones are detected in this number of rows, from the first on."""


class Columns(NamedTuple):
    """The roles of a table's columns, by name; the name is empty if no column has the role.

    Attributes:
        flags: (column, split) of each column of zeros and ones that marks the rows of a split; replaces ``split``.
        unread: the other columns.
        bits: columns of zeros and ones, one per label; they replace ``label``.
        mark: separator of several labels in a text; empty for none, None to detect it in each text.
    """

    file: str
    label: str
    split: str
    group: str
    flags: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()
    bits: tuple[str, ...] = ()
    mark: str | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of all columns that are read."""
        flags = (name for name, _ in self.flags)
        return [name for name in (self.file, self.label, *self.bits, self.split, *flags, self.group) if name]

    @property
    def words(self) -> str:
        """Describe the columns for the log."""
        unread = f"; not read: {_listed(self.unread, printable)}" if self.unread else ""
        return f"columns {_listed(self.names, printable)}{unread}"

    def read(self, row: Mapping[str, Any], name: str, settings: ImagesSettings) -> tuple[str | None, str, str]:
        """Return label, split in lower case, and group of a row; a missing label is None, the others are empty.

        Args:
            row: column → value.
            name: name of the table, which gives the split if the row has none.
            settings: settings of the conversion.

        Raises:
            ValueError: a value is invalid; the message completes "the row …".
        """
        said = [each for each in self.bits if _bit(row, each)] if self.bits else value_in(row, self.label)
        split, group = (text_of(value_in(row, column)) if column else None for column in (self.split, self.group))
        split = self._flagged(row) if self.flags else split or split_in_name(name)
        return label_of(said, settings, self.mark), split.lower(), group or ""

    def _flagged(self, row: Mapping[str, Any]) -> str:
        """Return the split whose column is 1 in a row; else test if a column marks training rows, else training.

        Raises:
            ValueError: the row is marked as in two splits, or a value is neither 0 nor 1.
        """
        marked = {split for column, split in self.flags if text_of(row.get(column)) and _bit(row, column)}
        if len(marked) > 1:
            raise ValueError(f"is marked as in the splits {' and '.join(sorted(marked))}")
        rest = TRAIN_NAMES[0] if {split for _, split in self.flags}.isdisjoint(TRAIN_NAMES) else TESTED[0]
        return next(iter(marked), rest)


def label_of(value: Any, settings: ImagesSettings, mark: str | None) -> str | None:
    """Return a source's label as the text form of a target, or None if the label is missing.

    Args:
        value: the value in the source.
        settings: settings of the conversion.
        mark: separator of several labels in a text; empty for none, None to detect it.

    Raises:
        ValueError: the value is no valid target; the message completes "the image …".
    """
    if not settings.several:
        value = only_member(value)
    if isinstance(value, (str, bytes, float, Decimal)):
        value = text_of(value) or ("" if settings.several and isinstance(value, str) else None)
    if value is None:
        return None
    if mark is not None and isinstance(value, str) and not _is_list(value):
        parts = map(str.strip, value.split(mark) if mark else [value])
        value = [part for part in parts if part]
    return settings.targets.text(value)


def value_in(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, None if missing; ``label.name`` is the member ``name`` of the object in ``label``.

    The object may be in a list of one object.
    """
    if column in row:
        return row[column]
    top, _, rest = column.partition(".")
    return value_in(inner, rest) if rest and is_object(inner := only_member(row.get(top))) else None


def _bit(row: Mapping[str, Any], column: str) -> bool:
    value = row.get(column)
    if (bit := _bit_of(value)) is None:
        raise ValueError(f"has {shortened(column)}={shortened(value)} vs 0 or 1")
    return bit


def _bit_of(value: Any) -> bool | None:
    return _BITS.get(str(value).strip().lower().removesuffix(".0"))


class NoColumnError(SourceError):
    """A table has no column for files, or none for labels, or lacks a column that the settings name."""


def class_columns(
    where: str,
    names: Sequence[str],
    settings: ImagesSettings,
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    file: str,
) -> Columns:
    """Detect the columns of a table that lists whole images and their classes.

    Args:
        where: name of the table, for errors.
        names: names of the columns.
        settings: settings that may name columns.
        rows: returns the rows; called only if the label column cannot be detected by name alone, or to detect the
            separator of several labels.
        file: the column of files or images, if already known.

    Raises:
        NoColumnError: no column fits files, or none fits labels.
        SourceError: the labels are not classes of whole images, or the table has no header; or see
            :func:`known_columns`.
    """
    found = known_columns(where, names, settings, file)
    if found.file:
        refuse_boxes(where, names, settings)
    if found.file and not found.label:
        bits = _bits(rows(), found)
        if bits and not settings.several:
            _refuse_one_hot(where, bits)
        if bits:
            return found._replace(bits=bits, unread=tuple(name for name in found.unread if name not in bits))
    if settings.several and found.label:
        mark = settings.joining
        texts = (value_in(row, found.label) for row in rows()) if mark is None else ()
        return found._replace(mark=_mark_in(texts) if mark is None else mark)
    if not names:
        raise NoColumnError(f"{where} has no columns, expected those of files and labels; add a header")
    if missing := next((what for what in ("file", "label") if not getattr(found, what)), ""):
        if any(name.lower().endswith((*IMAGE_ENDINGS,)) for name in names):
            raise SourceError(
                f"{where} begins with a row of values, {_listed(names)}, expected the names of its columns; add a "
                "header"
            )
        raise NoColumnError(
            f"{where} has the columns {_listed(names)}, but none for {missing}s was detected; if one of them is "
            f"meant, give --set conversion.{missing}_column=NAME"
        )
    return found


def known_columns(where: str, names: Sequence[str], settings: ImagesSettings, file: str) -> Columns:
    """Return the columns that the settings name, or whose names are common for a role; see :func:`class_columns`.

    Raises:
        NoColumnError: the settings name a column that does not exist.
        SourceError: several columns fit one role, or have the same name.
    """
    given = {what: getattr(settings, f"{what}_column") for what in _KNOWN} | ({"file": file} if file else {})
    file, label, split, group = (_column(where, names, what, given[what]) for what in _KNOWN)
    free = [split] if split else [name for name in names if name not in (file, label, group)]
    flags = () if given["split"] == NONE else _flags(free)
    found = Columns(file, label, "" if flags else split, group, flags)
    read = {"", *found.names, *(name.partition(".")[0] for name in found.names)}
    return found._replace(unread=tuple(name for name in names if name not in read))


def _flags(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (column, split) for each column whose name shows that it marks the rows of a split; empty if none does."""
    fitting = {name: found for name in names if (found := _FLAG.fullmatch(_letters(name)))}
    return tuple((name, found[1] or TESTED[0]) for name, found in fitting.items())


def _column(where: str, names: Sequence[str], what: str, given: str) -> str:
    setting = f"--set conversion.{what}_column"
    if given == NONE and NONE not in names:
        return ""
    known = [[given]] if given else [_KNOWN[what], _IDS if what == "file" else ()]
    fitting = next(
        (found for some in known if (found := [name for name in names if {name, _letters(name)} & {*some}])), []
    )
    if same := [name for name in fitting if fitting.count(name) > 1]:
        raise SourceError(f"{where} has {len(same)} columns named {shortened(same[0])} vs one; rename the others")
    if len(fitting) > 1:
        raise SourceError(f"{where}: {_listed(fitting)} may each be the column of {what}s; choose by {setting}=NAME")
    if given and not fitting and given.partition(".")[0] not in names:
        raise NoColumnError(f"{where} has the columns {_listed(names)}, but not {given} ({setting}); give one of these")
    return given or "".join(fitting)


def _letters(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _listed(names: Sequence[str], show: Callable[[str], str] = shortened) -> str:
    return first_few([*map(show, names)], 12)


def text_of(value: Any) -> str | None:
    """Return a table's value as text, the same for each file format; None for a missing value.

    Raises:
        ValueError: the value is a list or another type that cannot name a class, or is not UTF-8.
    """
    if isinstance(value, str):
        return cleaned(value) or None
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return text_of(value.decode())
        except UnicodeDecodeError:
            raise ValueError(f"has the value {shortened(value)}, expected UTF-8") from None
    if isinstance(value, int):  # or a bool
        return str(value).lower()
    if isinstance(value, (float, Decimal)):
        number = Decimal(str(value)).normalize() + 0
        return None if number.is_nan() else f"{number:f}"
    raise ValueError(f"has the value {shortened(value)}, expected a text or a number")


def with_whole_numbers(labels: Texts, settings: ImagesSettings) -> Texts:
    """Return the labels with ``1`` in place of ``1.0`` if all labels of the source are whole numbers."""
    targets = settings.targets
    numbers = whole_numbers(targets.class_names(text for text in labels.values if text))
    if not numbers:
        return labels

    def renamed(text: str) -> str:
        names = [numbers[name] for name in targets.class_names([text] if text else [])]
        return targets.text(names if settings.several else names[0]) if names else text

    texts = [*map(renamed, labels.values)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Texts([*places], np.array([*(places[text] for text in texts), -1], np.int32)[labels.codes])


class LabelColumn:
    """Collects the values of a label column, and checks that they are classes."""

    def __init__(self) -> None:
        self._values: Counter[Any] = Counter()
        self._lists: list[Any] = []

    @property
    def _texts(self) -> Counter[str]:
        texts = Counter[str]()
        for value, count in self._values.items():
            with contextlib.suppress(ValueError):  # the image is left out
                texts[text_of(value) or ""] += count
        del texts[""]
        return texts

    @property
    def only(self) -> str:
        """Return the label that all labelled images have; empty if labels differ or there are none."""
        texts = self._texts
        return next(iter(texts)) if len(texts) == 1 and not self._lists else ""

    def add(self, value: Any) -> None:
        """Add the label of one image, as it is in the table."""
        value = only_member(value)
        if isinstance(value, (list, tuple, dict)) or _is_list(str(value)):
            self._lists.append(value)
        else:
            self._values[value] += 1

    def refuse_unclear(self, where: str, column: str, settings: ImagesSettings) -> None:
        """Raise an error unless each label names one class, or the settings allow otherwise.

        Args:
            where: name of the table, for errors.
            column: name of the label column.
            settings: settings that may allow lists, or declare each label a class.

        Raises:
            SourceError: many labels are lists, some contain a separator of labels, or most of many occur once.
        """
        texts, total = self._texts, self._texts.total()
        lists_are_few = len(self._lists) <= max(1, _MOST_LISTS * (len(self._lists) + total))
        if not settings.several and not lists_are_few:
            _refuse_several(where, column, self._lists[0])
        if not settings.one_class:
            return
        if joined := min((text for text in texts if _mark_in([text]) in _JOINING), default=""):
            _refuse_several(where, column, joined)
        once = sorted(text for text, count in texts.items() if count == 1)
        if total > _FEW and 2 * len(once) > total:
            raise SourceError(
                f"{where}: the column {shortened(column)} holds {total:,} labels, of which {len(once):,} occur once, "
                f"like {shortened(once[0])}, so these are values, names or captions, but {_READ}; give another column "
                f"(conversion.label_column), or, if each label is a class, {_ALLOW}"
            )


def _refuse_several(where: str, column: str, example: Any) -> NoReturn:
    if is_object(example) and (key := next((key for key, text in example.items() if isinstance(text, str)), "")):
        raise SourceError(
            f"{where}: the column {shortened(column)} holds objects, like {shortened(example)}, expected classes; name "
            f"the member with the class, for example --set conversion.label_column={column}.{key}"
        )
    allow = f", or, if the text is one class, {_ALLOW}" if isinstance(example, str) else ""
    raise SourceError(
        f"{where}: the column {shortened(column)} holds several labels per image, like {shortened(example)}; {_READ}: "
        f"convert the source as the data set labels, or give a column with one class (conversion.label_column){allow}"
    )


def only_member(value: Any) -> Any:
    """Return the only member of a list, or of a list written as text; return other values unchanged."""
    members = value
    if isinstance(value, str) and value[:1] + value[-1:] == "[]":
        try:
            members = literal(value)
        except ValueError:
            return value
    return members[0] if isinstance(members, (list, tuple)) and len(members) == 1 else value


def _mark_in(values: Iterable[Any]) -> str:
    """Return the separator of labels in some texts, or an empty text if none occurs."""
    texts = {value for value in values if isinstance(value, str) and not _is_list(value)}
    return next((mark for mark in MARKS if any(mark in text for text in texts)), "")


def refuse_boxes(where: str, names: Sequence[str], settings: ImagesSettings) -> None:
    """Raise an error if a table describes objects in images.

    Args:
        where: name of the table, for errors.
        names: names of the table's columns.
        settings: settings that may declare each label the class of a whole image.

    Raises:
        SourceError: the table has columns of boxes.
    """
    found = _boxes(tuple(names)) if settings.one_class else ()
    if found:
        raise SourceError(
            f"{where} has columns of boxes or outlines ({', '.join(map(shortened, found))}), so its labels belong to "
            f"objects, but {_READ}; give a table of whole images, or, if each label is of its whole image, {_ALLOW}"
        )


@lru_cache(maxsize=256)
def _boxes(names: tuple[str, ...]) -> tuple[str, ...]:
    known = {_letters(name): name for name in names}
    corners = next((group for group in map(str.split, _CORNERS) if known.keys() >= {*group}), [])
    return tuple(known[name] for name in (*corners, *sorted(_BOXES & known.keys())))


def _bits(rows: Iterable[Mapping[str, Any]], known: Columns) -> tuple[str, ...]:
    """Return the unread columns with only zeros and ones in the first :data:`ROWS` rows; empty if fewer than two."""
    first = list(islice(rows, ROWS))
    names = known.unread if first else ()
    found = tuple(name for name in names if all(_bit_of(row.get(name)) is not None for row in first))
    return found if len(found) > 1 else ()


def _refuse_one_hot(where: str, bits: Sequence[str]) -> NoReturn:
    raise SourceError(
        f"{where} has one column for each label, with zeros and ones ({_listed(bits)}), but "
        f"{_READ}; give a table with one column that names the class (pandas: idxmax(axis=1)), or convert the source "
        "as the data set labels"
    )


def _is_list(text: str) -> bool:
    return text[:1] + text[-1:] in ("[]", "{}")
