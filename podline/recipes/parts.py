"""Models, optimizers, losses and layouts of images by name: those that Podline ships, and those of installed packages.

A package adds one by an entry point, a function; docs/extending.md has an example of each. Their names are known
without importing any of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Protocol

from podline import entry_points
from podline.errors import PodlineError, SettingsError
from podline.settings import nearest


class PartSettings(Protocol):
    """What a recipe says of such a part."""

    @property
    def kind(self) -> str:
        """Its name."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Settings that it alone has."""
        ...


@dataclass(frozen=True)
class Registry:
    """Functions by name.

    Attributes:
        what: one of them is, in words.
        group: the entry points by which installed packages add some.
        shipped: name → ``module:function`` of Podline's own.
    """

    what: str
    group: str
    shipped: Mapping[str, str]

    def names(self) -> tuple[str, ...]:
        """The names of all, shipped and installed."""
        return tuple(dict.fromkeys((*self.shipped, *(point.name for point in entry_points.installed(self.group)))))

    def require(self, settings: PartSettings) -> None:
        """Refuses a name that there is not, and options of a part that has none.

        Raises:
            SettingsError: so.
        """
        if settings.kind not in self.shipped and settings.kind not in (known := self.names()):
            raise SettingsError(f"there is no {self.what} {settings.kind!r}; {nearest(settings.kind, known)}")
        if settings.options and settings.kind in self.shipped:
            raise SettingsError(f"{self.what} {settings.kind} has no options vs {', '.join(settings.options)}")

    def make(self, settings: PartSettings, *arguments: Any) -> Any:
        """What the function of a name gives for these arguments.

        Raises:
            SettingsError: there is no such name, or two of it; the function cannot be imported, or fails.
        """
        self.require(settings)
        function = self.load(settings.kind)
        if settings.kind in self.shipped:
            return function(*arguments)
        try:
            return function(*arguments)
        except PodlineError:
            raise
        except Exception as error:
            raise SettingsError(f"{self.what} {settings.kind}: {entry_points.reason(error)}") from error

    def load(self, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            SettingsError: there is no such name, or two of it; or it cannot be imported.
        """
        if name in self.shipped:
            return entry_points.load(self.shipped[name])
        installed = self._installed()
        if name not in installed:
            raise SettingsError(f"there is no {self.what} {name!r}; {nearest(name, self.names())}")
        return entry_points.load_installed(installed[name])

    def import_installed(self) -> None:
        """Imports the modules of all that is installed, but for those that cannot be."""
        for point in entry_points.installed(self.group):
            with contextlib.suppress(SettingsError):
                entry_points.load_installed(point)

    def _installed(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in entry_points.installed(self.group):
            if point.name in self.shipped or point.name in found:
                raise SettingsError(f"entry point {point.value}: another {self.what} is named {point.name!r}")
            found[point.name] = point
        return found


AUGMENTATIONS = "podline.augmentations"
HOOKS = "podline.hooks"
MODELS = Registry(
    "model",
    "podline.models",
    {
        "linear": "podline.models.linear:linear",
        "resnet": "podline.models.resnet:resnet",
        "mobilenetv2": "podline.models.mobilenetv2:mobilenetv2",
        "mobilenetv3-small": "podline.models.applications:mobilenetv3_small",
        "mobilenetv3-large": "podline.models.applications:mobilenetv3_large",
        "efficientnetv2-b0": "podline.models.applications:efficientnetv2_b0",
        "convnext-tiny": "podline.models.applications:convnext_tiny",
    },
)
OPTIMIZERS = Registry(
    "optimizer",
    "podline.optimizers",
    {
        "sgd": "podline.training.optimizers:sgd",
        "adam": "podline.training.optimizers:adam",
        "adamw": "podline.training.optimizers:adam",
        "rmsprop": "podline.training.optimizers:rmsprop",
        "adafactor": "podline.training.optimizers:adafactor",
        "muon": "podline.training.muon:muon",
    },
)
LOSSES = Registry("loss", "podline.losses", {"cross_entropy": "podline.training.objective:cross_entropy_of"})
LAYOUTS = Registry(
    "layout",
    "podline.layouts",
    {
        "folders": "podline.data.images.layouts.folders:Folders",
        "table": "podline.data.images.layouts.table:Tables",
        "webdataset": "podline.data.images.layouts.webdataset:WebDataset",
        "tfds": "podline.data.images.layouts.tfds:Prepared",
    },
)
