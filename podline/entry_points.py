"""Code by name, ``module:name``: calls from a lower layer into a higher one, and parts of installed packages."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from podline.errors import SettingsError, one_line

# A command's help needs neither pydantic nor what is installed, and is there at once.
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTIONS = "podline.sections"
"""The group of a report's sections."""


def load(place: str) -> Any:
    """Import and return what a name ``module:name`` of Podline's own stands for."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of installed packages in a group, as ``podline.measures``; none is imported yet."""
    return list(_found(group, tuple(sys.path)))


@functools.cache
def _found(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read the entry points of every package once for each search path: 20 ms for 270 packages, several times a run."""
    import importlib.metadata  # noqa: PLC0415

    return tuple(importlib.metadata.entry_points(group=group))


def load_installed(named: EntryPoint) -> Any:
    """Import and return the object of an installed package's entry point.

    Raises:
        SettingsError: it cannot be imported, or is not there.
    """
    try:
        return named.load()
    except Exception as error:
        raise SettingsError(f"entry point {named.value} ({named.name} of {named.group}): {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an error of somebody else's code in one line; of a value that cannot be, which one."""
    from pydantic import ValidationError  # noqa: PLC0415

    from podline.frozen import problem_in  # noqa: PLC0415

    if isinstance(error, ValidationError):
        problem = problem_in(error)
        return f"{'.'.join(map(str, problem.loc))} = {problem.input!r}: {problem.msg}"
    return f"{type(error).__name__}: {one_line(error)}"
