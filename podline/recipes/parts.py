"""Finds parts (models, optimizers, losses, hooks …) by name, Podline's and those of installed packages.

A package adds a part by an entry point for a function; docs/how-to/parts.md has an example of each kind of part. To
list the names, no part is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import Json
from podline.recipes.keras_optimizers import KERAS_OPTIMIZERS
from podline.settings.machine import nearest

T = TypeVar("T")
Plugin: TypeAlias = Callable[..., object]
"""A function of an installed package; the caller checks the result."""


class PartSettings(Protocol):
    """A recipe's choice of a part."""

    @property
    def kind(self) -> str:
        """The name of the part."""
        ...

    @property
    def options(self) -> Mapping[str, Json]:
        """The part's own settings."""
        ...


class Loaded(NamedTuple, Generic[T]):
    """The loadable objects of a registry by name, and a line for each object that cannot be loaded."""

    objects: dict[str, T]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Named objects of Podline and of installed packages; an object is imported on access.

    Attributes:
        what: noun for an object in messages.
        group: the entry-point group of installed packages.
        shipped: name → Podline's object, or its ``module:name``.
        row: the required class of the objects; None for functions. An object's attribute ``name``, if any, must be the
            registered name.
        with_options: names of Podline's objects that take options.
    """

    what: str
    group: str
    shipped: Mapping[str, Json] = field(default_factory=dict[str, Json])
    row: type[T] | None = None
    with_options: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return all names, Podline's first."""
        return tuple(dict.fromkeys((*self.shipped, *(point.name for point in entry_points.installed(self.group)))))

    def load(self, name: str) -> T:
        """Return the object with this name.

        Raises:
            SettingsError: the name is unknown or ambiguous, or its object cannot be imported or is not a ``row``.
        """
        if name in self.shipped and not any(name == point.name for point in entry_points.installed(self.group)):
            return self._shipped(name)
        return self._installed(self.point(name))

    def _shipped(self, name: str) -> T:
        found: Any = self.shipped[name]
        return entry_points.load(found) if isinstance(found, str) else found

    def loaded(self) -> Loaded[T]:
        """Return all objects that can be loaded, and the problems of objects that cannot."""
        found, problems = {name: self._shipped(name) for name in self.shipped}, list[str]()
        for name in dict.fromkeys(sorted(point.name for point in entry_points.installed(self.group))):
            try:
                found[name] = self._installed(self.point(name))
            except SettingsError as error:
                problems.append(str(error))
        return Loaded(found, tuple(problems))

    def all(self) -> dict[str, T]:
        """Return all objects by name, Podline's first.

        Raises:
            SettingsError: an object cannot be loaded.
        """
        for problem in self.loaded().problems:
            raise SettingsError(problem)
        return self.loaded().objects

    def _installed(self, point: EntryPoint) -> T:
        found = entry_points.load_installed(self.what, point)
        if self.row is None:
            return found
        title = entry_points.title(self.what, point)
        if not isinstance(found, self.row):
            expected = f"{self.row.__module__}.{self.row.__name__}"
            raise SettingsError(f"{title}: got {type(found).__name__}, expected a {expected}")
        if (name := getattr(found, "name", point.name)) != point.name:
            raise SettingsError(f"{title}: got the name {name!r}, expected {point.name!r}, the entry point's name")
        return found

    def point(self, name: str) -> EntryPoint:
        """Return the entry point with this name.

        Raises:
            SettingsError: no installed package has this name, or two packages or a package and Podline have it.
        """
        found = [point for point in entry_points.installed(self.group) if point.name == name]
        if found and (len(found) > 1 or name in self.shipped):
            raise SettingsError(
                f"{entry_points.title(self.what, found[-1])}: another {self.what} has this name; rename "
                "this one, or uninstall its package"
            )
        if found:
            return found[0]
        known = self.names()
        there = nearest(name, known) if known else f"no installed package adds one ({self.group})"
        raise SettingsError(f"there is no {self.what} {name!r}; {there}")

    def title(self, name: str) -> str:
        """Return an object's name for messages, with the package of an installed object."""
        return f"{self.what} {name}" if name in self.shipped else entry_points.title(self.what, self.point(name))

    def call(self: Registry[Plugin], name: str, *arguments: object) -> object:
        """Call the function with this name.

        Raises:
            SettingsError: see :meth:`load`; or the function of an installed package raises an error.
        """
        function = self.load(name)
        if name in self.shipped:
            return function(*arguments)
        with entry_points.explained(self.title(name)):
            return function(*arguments)

    def require(self, settings: PartSettings) -> None:
        """Check that a part exists, and that no options are given if it has none.

        Raises:
            SettingsError: the part does not exist, or has no options but gets some.
        """
        if settings.kind not in self.shipped:
            self.point(settings.kind)
        elif settings.options and settings.kind not in self.with_options:
            options = ", ".join(settings.options)
            raise SettingsError(
                f"{self.what} {settings.kind} has no options vs {options}; leave {self.what}.options out"
            )

    def make(self: Registry[Plugin], settings: PartSettings, *arguments: object) -> object:
        """Call the function of a recipe's part with these arguments.

        Raises:
            SettingsError: see :meth:`require` and :meth:`call`.
        """
        self.require(settings)
        return self.call(settings.kind, *arguments)


AUGMENTATIONS: Registry[Plugin] = Registry("augmentation", "podline.augmentations")
HOOKS: Registry[Plugin] = Registry("hook", "podline.hooks")
MODELS: Registry[Plugin] = Registry(
    "model",
    "podline.models",
    {
        "linear": "podline.models.linear:linear",
        "resnet": "podline.models.resnet:resnet",
        "mobilenetv2": "podline.models.mobilenetv2:mobilenetv2",
        "efficientnet-lite0": "podline.models.efficientnet_lite:efficientnet_lite0",
        "mobilenetv3-small": "podline.models.applications:application",
        "mobilenetv3-large": "podline.models.applications:application",
        "efficientnetv2-b0": "podline.models.applications:application",
        "convnext-tiny": "podline.models.applications:application",
    },
)
OPTIMIZERS: Registry[Plugin] = Registry(
    "optimizer",
    "podline.optimizers",
    {
        **dict.fromkeys(KERAS_OPTIMIZERS, "podline.training.optimizers:of_keras"),
        "adafactor": "podline.training.optimizers:adafactor",
        "muon": "podline.training.muon:muon",
    },
    with_options=tuple(KERAS_OPTIMIZERS),
)
# Each kind of task implements these losses itself.
LOSSES: Registry[Plugin] = Registry("loss", "podline.losses", {"cross_entropy": None, "focal": None})
LAYOUTS: Registry[Any] = Registry(
    "layout",
    "podline.layouts",
    {
        "folders": "podline.data.images.layouts.folders:Folders",
        "table": "podline.data.images.layouts.table:Tables",
        "webdataset": "podline.data.images.layouts.webdataset:WebDataset",
        "tfds": "podline.data.images.layouts.tfds:Prepared",
    },
)
