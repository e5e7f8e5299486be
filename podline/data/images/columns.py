"""Finds the columns of a table that say which file, class, split and group an image has; refuses what is no class.

Several labels of an image, boxes of objects and decimal numbers are no classes of whole images.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from podline.data.images.items import split_in_name
from podline.data.images.settings import ImagesSettings
from podline.data.shown import shortened
from podline.errors import SourceError

_KNOWN = {
    "file": ("filename", "file", "image", "path", "imagepath", "filepath", "imagefile", "imagename", "img"),
    "label": ("label", "labels", "class", "classname", "category", "target"),
    "split": ("split", "subset", "partition"),
    "group": ("group", "groupid"),
}
_READ = "Podline reads one class for each whole image"
_ALLOW = "--set conversion.labels_are_classes=true"

# Columns of boxes and outlines, without blanks and underscores; of each group all must be there.
_BOXES = frozenset(
    "bbox bboxes box boxes boundingbox boundingboxes objects annotations segmentation polygon".split()  # noqa: SIM905
)
_CORNERS = (
    ("xmin", "ymin"),
    ("minx", "miny"),
    ("x1", "y1"),
    ("x0", "y0"),
    ("left", "top"),
    ("xcenter", "ycenter"),
    ("centerx", "centery"),
    ("cx", "cy"),
    ("bboxx", "bboxy"),
    ("bboxxmin", "bboxymin"),
    ("bboxx1", "bboxy1"),
    ("x", "y", "w", "h"),
    ("x", "y", "width", "height"),
)
_TAGS = frozenset(["tags", "tag", "keywords", "keyword", "attributes"])
_PLURAL = _TAGS | frozenset(["labels", "classes", "categories", "classnames"])
_MOST_LISTS = 0.1  # of all labels; fewer are left out, each with its reason
_LEAST_COMBINED = 1 / 3  # of labels of several words that are made of other labels
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_ROWS = 200  # that are looked at to tell columns of zeros and ones


class Columns(NamedTuple):
    """Names of a table's columns; empty of those that it does not have."""

    file: str
    label: str
    split: str
    group: str

    def read(self, row: Mapping[str, Any], name: str) -> tuple[str | None, str, str]:
        """Return label, split and group of a row.

        Args:
            row: values by column.
            name: of the table, which may say the split where no column does.

        Raises:
            ValueError: a value names nothing; a phrase that follows the row's name.
        """
        label, split, group = (text_of(row.get(column)) if column else None for column in self[1:])
        split = split if self.split else split_in_name(name)
        return label, (split or "").strip().lower(), group or ""


class NoColumnError(SourceError):
    """A table has no column of files or of labels."""


def class_columns(
    where: str,
    names: Sequence[str],
    settings: ImagesSettings,
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    file: str = "",
) -> Columns:
    """Return which column is which in a table of whole images and their classes.

    Args:
        where: what errors call the table.
        names: its columns.
        settings: may name them.
        rows: gives its rows; called where no column holds labels.
        file: the column of files or images, where it is known already.

    Raises:
        NoColumnError: none can be the files', or the labels'.
        SourceError: its labels are of something else, or see :func:`known_columns`.
    """
    found = known_columns(where, names, settings, file)
    if found.file:
        refuse_boxes(where, names, settings)
    if found.file and not found.label:
        _refuse_one_hot(where, rows())
    for what in ("file", "label"):
        if not getattr(found, what):
            raise NoColumnError(
                f"{where} has the columns {_listed(names)}, and no one of {what}s: is it one of them? "
                f"give --set conversion.{what}_column=NAME"
            )
    return found


def known_columns(where: str, names: Sequence[str], settings: ImagesSettings, file: str = "") -> Columns:
    """Return which column is which: as the settings say, else by its name; empty of one that is not there.

    Args:
        where: what errors call the table.
        names: its columns.
        settings: may name them.
        file: the column of files or images, where it is known already.

    Raises:
        NoColumnError: one that the settings name is not there.
        SourceError: two may be meant.
    """
    given = {what: getattr(settings, f"{what}_column") for what in _KNOWN} | ({"file": file} if file else {})
    return Columns(**{what: _column(where, names, what, given[what]) for what in _KNOWN})


def _column(where: str, names: Sequence[str], what: str, given: str) -> str:
    setting = f"--set conversion.{what}_column"
    if given:
        if given not in names:
            raise NoColumnError(f"{where} has the columns {_listed(names)} vs {setting}={given}; give one of them")
        return given
    fitting = [name for name in names if re.sub(r"[^0-9a-z]", "", name.lower()) in _KNOWN[what]]
    if len(fitting) > 1:
        raise SourceError(f"{where}: the {what}s may be in {_listed(fitting)}; say in which by {setting}=NAME")
    return fitting[0] if fitting else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shortened(name) for name in names[:12]) + (", …" if len(names) > 12 else "")


def text_of(value: Any) -> str | None:
    """Return a value of a table as text, the same from any kind of table; None where there is none.

    Raises:
        ValueError: it is a list, bytes or another thing that names nothing.
    """
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return None if math.isnan(value) else str(int(value)) if value.is_integer() else repr(value)
    raise ValueError(f"has a value that is {shortened(value)} vs a text or a number")


class Labels:
    """The values of a column of labels."""

    def __init__(self) -> None:
        self._texts: Counter[str] = Counter()
        self._lists = 0
        self._first_list: Any = None

    def add(self, value: Any) -> None:
        """Add an image's label, as it was read."""
        if isinstance(value, (list, tuple, dict)) or (
            isinstance(value, str) and value[:1] + value[-1:] in ("[]", "{}")
        ):
            self._first_list = self._first_list or value
            self._lists += 1
            return
        try:
            text = text_of(value)
        except ValueError:
            return
        if text and text.strip():
            self._texts[text.strip()] += 1

    @property
    def whole_floats(self) -> bool:
        """Return whether all are whole numbers and some are written as 1.0, as pandas does beside a missing value."""
        return any("." in text for text in self._texts) and all(map(_WHOLE.fullmatch, self._texts))

    def refuse_unclear(self, where: str, column: str, settings: ImagesSettings) -> None:
        """Check that each label names one class.

        Args:
            where: what errors call the table.
            column: of the labels.
            settings: may say that every label is a class.

        Raises:
            SourceError: some are lists, join several labels, or are decimal numbers.
        """
        if self._lists > max(1, _MOST_LISTS * (self._lists + self._texts.total())):
            _refuse_several(where, column, self._first_list)
        if settings.labels_are_classes:
            return
        if self._texts and all(map(_NUMBER.fullmatch, self._texts)):
            decimal = next((text for text in self._texts if not _WHOLE.fullmatch(text)), None)
            if decimal is not None:
                raise SourceError(
                    f"{where}: the column {shortened(column)} holds decimal numbers, as {decimal}: these are values to "
                    f"estimate, and {_READ}; give another column (conversion.label_column), or, if each number is a "
                    f"class, {_ALLOW}"
                )
            return
        joined = _joined(sorted(self._texts), re.sub(r"[^0-9a-z]", "", column.lower()))
        if joined is not None:
            _refuse_several(where, column, joined)


def _refuse_several(where: str, column: str, example: Any) -> NoReturn:
    allow = f", or, if this is one class, {_ALLOW}" if isinstance(example, str) else ""
    raise SourceError(
        f"{where}: the column {shortened(column)} holds several labels of an image, as {shortened(example)}; {_READ}: "
        f"give a column with one class (conversion.label_column){allow}"
    )


def _joined(labels: Sequence[str], column: str) -> str | None:
    """Return a label that joins several; None if there is none.

    A ``|`` or ``;`` joins. A comma may be part of a name, as in ``tench, Tinca tinca``: it joins where all of a label's
    parts occur in other labels. So do blanks where many labels add words to another one, or have the same words in
    another order: not in ``golden retriever`` and ``labrador retriever``.
    """
    for mark in ("|", ";"):
        for label in labels:
            if len(_parts(label, mark)) > 1:
                return label
    commas = [label for label in labels if len(_parts(label, ",")) > 1]
    made = _made_of_others(labels, commas, ",")
    if commas and (made or column in _PLURAL):
        return (made or commas)[0]
    words = [label for label in labels if len(_parts(label, None)) > 1]
    if words and column in _TAGS:
        return words[0]
    sets = Counter(frozenset(_parts(label, None)) for label in labels)
    made = [label for label in _made_of_others(labels, words, None) if _extends(frozenset(_parts(label, None)), sets)]
    return made[0] if len(made) > max(1, _LEAST_COMBINED * len(words)) else None


def _parts(label: str, mark: str | None) -> list[str]:
    return [part.strip() for part in label.split(mark) if part.strip()]


def _made_of_others(labels: Sequence[str], candidates: Sequence[str], mark: str | None) -> list[str]:
    """Return the candidates of which every part occurs in another label."""
    counts = Counter(part for label in labels for part in set(_parts(label, mark)))
    return [label for label in candidates if all(counts[part] > 1 for part in _parts(label, mark))]


def _extends(words: frozenset[str], sets: Counter[frozenset[str]]) -> bool:
    """Return whether another label has the same words, or all of these but one."""
    return sets[words] > 1 or any(sets[words - {word}] for word in words)


def refuse_boxes(where: str, names: Sequence[str], settings: ImagesSettings) -> None:
    """Check that a table is not about objects in images.

    Args:
        where: what errors call the table.
        names: its columns.
        settings: may say that every label is the class of a whole image.

    Raises:
        SourceError: it has columns of boxes.
    """
    found = () if settings.labels_are_classes else _boxes(tuple(names))
    if found:
        raise SourceError(
            f"{where} has columns of boxes or outlines ({', '.join(map(shortened, found))}): its labels are of "
            f"objects, and {_READ}; give a table of whole images, or, if a label is that of its whole image, {_ALLOW}"
        )


@lru_cache(maxsize=256)
def _boxes(names: tuple[str, ...]) -> tuple[str, ...]:
    known = {re.sub(r"[^0-9a-z]", "", name.lower()): name for name in names}
    corners = next((group for group in _CORNERS if known.keys() >= set(group)), ())
    return tuple(known[name] for name in (*corners, *sorted(_BOXES & known.keys())))


def _refuse_one_hot(where: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Check that a table without a column of labels has not one column for each class.

    Raises:
        SourceError: it has.
    """
    first = [row for _, row in zip(range(_ROWS), rows, strict=False)]
    names = [name for name in (first[0] if first else {}) if all(_is_bit(row.get(name)) for row in first)]
    if len(names) > 1:
        raise SourceError(
            f"{where} has one column for each label, with zeros and ones ({', '.join(map(shortened, names[:6]))}), and "
            f"{_READ}; give a table with one column that names the class, as pandas' idxmax(axis=1) makes it"
        )


def _is_bit(value: Any) -> bool:
    return str(value).strip().lower() in ("0", "1", "0.0", "1.0", "true", "false")
