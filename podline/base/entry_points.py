"""Imports code by ``module:name``: from a higher layer of Podline, or from entry points of installed packages.

Also checks that the packages of an extra of Podline are installed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from podline.base.errors import PodlineError, SettingsError, one_line

# A command's help must not import pydantic or installed packages.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

SECTIONS = "podline.sections"
"""The entry-point group of report sections."""
# A requirement of an extra, as in `ray[default]<3,>=2.50; extra == "ray"`.
_OF_EXTRA = re.compile(r"""([\w.-]+)([^;]*?)\s*;\s*extra\s*==\s*["']([\w-]+)["']""")


def load(place: str) -> Any:
    """Import and return Podline's object at ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of a group such as ``podline.measures``, without importing their packages."""
    return list(_found(group, tuple(sys.path)))


@functools.cache
def _found(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return a group's entry points of all packages; cached, since reading takes 20 ms for 270 packages."""
    import importlib.metadata  # noqa: PLC0415

    return tuple(importlib.metadata.entry_points(group=group))


def title(what: str, point: EntryPoint) -> str:
    """Return kind, name, module and package of an entry point: ``hook memory (my_hooks:memory of my-hooks)``."""
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
    """Convert exceptions of external code, ``sys.exit`` included, to errors that name the part; see :func:`title`.

    Args:
        what: the part, with which the message begins.
        passed: classes of exceptions that are not converted; PodlineErrors and interrupts never are.

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


def require_extra(extra: str, asked: str, instead: str = "") -> None:
    """Check that the packages of an extra of Podline are installed.

    Args:
        extra: name of the extra.
        asked: the option or setting that needs the packages.
        instead: an option that works without the packages.

    Raises:
        SettingsError: a package is missing; the message begins with ``asked`` and ends with the remedies.
    """
    from importlib.metadata import distributions  # noqa: PLC0415

    needed = _needs(extra)
    missing = [name for name in needed if not any(distributions(name=name))]
    if missing:
        otherwise = f", or give {instead}" if instead else ""
        raise SettingsError(
            f"{asked} needs {' and '.join(needed)}; not installed: {', '.join(missing)}; run `{install_command(extra)}`"
            f"{otherwise}"
        )


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra's packages; it omits Podline, which no package index has."""
    from importlib.util import find_spec  # noqa: PLC0415

    python, wanted = shlex.quote(sys.executable), " ".join(map(shlex.quote, _needs(extra).values()))
    return f"{python} -m pip install {wanted}" if find_spec("pip") else f"uv pip install --python {python} {wanted}"


def _needs(extra: str) -> dict[str, str]:
    """Return package name → requirement for the packages of an extra."""
    from importlib.metadata import requires  # noqa: PLC0415

    found = map(_OF_EXTRA.fullmatch, requires("podline") or ())
    return {match[1]: match[1] + match[2] for match in found if match and match[3] == extra}


@contextlib.contextmanager
def _keras_defaults_kept() -> Iterator[None]:
    """Undo the body's changes of Keras's global settings, which would affect models of other packages."""
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
    """Describe an exception of external code in one line; for pydantic's ValidationError, give field and value."""
    from pydantic import ValidationError  # noqa: PLC0415

    from podline.base.frozen import problem_in  # noqa: PLC0415

    if isinstance(error, ValidationError):
        problem = problem_in(error)
        where = ".".join(map(str, problem.loc))
        return f"{where} = {problem.input!r}: {problem.msg}" if where else problem.msg
    return f"{type(error).__name__}: {one_line(error)}"
