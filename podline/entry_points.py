"""Imports code by ``module:name``: for calls from a lower layer to a higher one, and for installed packages."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from podline.errors import SettingsError, one_line

# A command's help must not import pydantic or installed packages.
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTIONS = "podline.sections"
"""The group of a report's sections."""


def load(place: str) -> Any:
    """Import the object of a name ``module:name`` in Podline."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of installed packages in a group, as ``podline.measures``, without importing them."""
    return list(_found(group, tuple(sys.path)))


@functools.cache
def _found(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read the entry points of every package once per search path; it takes 20 ms for 270 packages."""
    import importlib.metadata  # noqa: PLC0415

    return tuple(importlib.metadata.entry_points(group=group))


def load_installed(named: EntryPoint) -> Any:
    """Import and return the object of an installed package's entry point.

    Raises:
        SettingsError: the object cannot be imported, or does not exist.
    """
    try:
        return named.load()
    except Exception as error:
        raise SettingsError(f"entry point {named.value} ({named.name} of {named.group}): {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an exception of external code in one line; for an invalid value, name the value."""
    from pydantic import ValidationError  # noqa: PLC0415

    from podline.frozen import problem_in  # noqa: PLC0415

    if isinstance(error, ValidationError):
        problem = problem_in(error)
        where = ".".join(map(str, problem.loc))
        return f"{where} = {problem.input!r}: {problem.msg}" if where else problem.msg
    return f"{type(error).__name__}: {one_line(error)}"
