"""Finds the columns of a table that say which file, class, split and group an image has."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from podline.data.images.settings import ImagesSettings
from podline.data.sources.shown import shortened
from podline.errors import SourceError

_KNOWN = {
    "file": ("filename", "file", "image", "path", "imagepath", "filepath", "imagefile", "imagename", "img"),
    "label": ("label", "labels", "class", "classname", "category", "target"),
    "split": ("split", "subset", "partition"),
    "group": ("group", "groupid"),
}


class Columns(NamedTuple):
    """Names of a table's columns; empty of those that it does not have."""

    file: str
    label: str
    split: str
    group: str


class NoColumnError(SourceError):
    """A table has no column of files or of labels."""


def columns_of(where: str, names: Sequence[str], settings: ImagesSettings, file: str = "") -> Columns:
    """Return which column is which, and require those of files and of labels.

    Args:
        where: what errors call the table.
        names: its columns.
        settings: may name them.
        file: the column of files or images, where it is known already.

    Raises:
        NoColumnError: none can be the files', or the labels'.
        SourceError: see :func:`known_columns`.
    """
    found = known_columns(where, names, settings, file)
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
    """A value of a table as text, the same from any kind of table; None where there is none.

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
    raise ValueError(f"is {shortened(value)} vs a text or a number")
