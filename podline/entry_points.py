"""Imports code by ``module:name``: for calls from a lower layer to a higher one, and for installed packages."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from podline.errors import PodlineError, SettingsError, one_line

# A command's help must not import pydantic or installed packages.
if TYPE_CHECKING:
    from collections.abc import Iterator
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


def title(what: str, point: EntryPoint) -> str:
    """Return a part with its place and its package, for messages: ``hook memory (my_hooks:memory of my-hooks)``."""
    package = point.dist.name if point.dist else point.module.partition(".")[0]
    return f"{what} {point.name} ({point.value} of {package})"


def load_installed(what: str, point: EntryPoint) -> Any:
    """Import and return the object of an installed package's entry point.

    Raises:
        SettingsError: the object cannot be imported, or does not exist.
    """
    with explained(title(what, point)), _keras_defaults_kept():
        return point.load()


@contextlib.contextmanager
def explained(what: str, *passed: type[Exception]) -> Iterator[None]:
    """Turn an error of external code, ``sys.exit`` included, into one that names the part; see :func:`title`.

    Args:
        what: the part.
        passed: classes of errors that stay as they are, besides PodlineErrors and interrupts.

    Raises:
        SettingsError: the body raised another exception.
    """
    try:
        yield
    except (PodlineError, KeyboardInterrupt, GeneratorExit, *passed):
        raise
    except BaseException as error:
        if hasattr(error, "signal"):  # Prefect's TerminationSignal, from the handler of SIGTERM
            raise
        raise SettingsError(f"{what}: {reason(error)}") from error


@contextlib.contextmanager
def _keras_defaults_kept() -> Iterator[None]:
    """Undo changes of Keras's global settings, which would change the models of others."""
    keras: Any = sys.modules.get("keras")
    defaults = ("floatx", "image_data_format", "dtype_policy")
    before = {name: getattr(keras.config, name)() for name in defaults} if keras else {}
    try:
        yield
    finally:
        if keras := sys.modules.get("keras"):
            for name, usual in zip(defaults, ("float32", "channels_last", "float32"), strict=True):
                getattr(keras.config, f"set_{name}")(before.get(name, usual))


def reason(error: BaseException) -> str:
    """Return an exception of external code in one line; for an invalid value, name the value."""
    from pydantic import ValidationError  # noqa: PLC0415

    from podline.frozen import problem_in  # noqa: PLC0415

    if isinstance(error, ValidationError):
        problem = problem_in(error)
        return f"{'.'.join(map(str, problem.loc))} = {problem.input!r}: {problem.msg}"
    return f"{type(error).__name__}: {one_line(error)}"
