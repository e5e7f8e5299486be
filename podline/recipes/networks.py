"""The names of models and optimizers: those that Podline ships, and those of installed packages."""

from __future__ import annotations

from podline import entry_points
from podline.errors import SettingsError
from podline.settings import nearest

MODELS, OPTIMIZERS = "podline.models", "podline.optimizers"
SHIPPED: dict[str, tuple[str, ...]] = {
    MODELS: ("linear", "resnet", "mobilenetv2"),
    OPTIMIZERS: ("sgd", "adam", "adamw", "rmsprop", "adafactor"),
}
"""Group of entry points → the names of those that Podline ships."""
_WHAT = {MODELS: "model", OPTIMIZERS: "optimizer"}


def names(group: str) -> tuple[str, ...]:
    """All names of a group: shipped ones first.

    Raises:
        SettingsError: an installed one has the name of another.
    """
    found = list(SHIPPED[group])
    for point in entry_points.installed(group):
        if point.name in found:
            raise SettingsError(f"entry point {point.value}: another {_WHAT[group]} is named {point.name!r}")
        found.append(point.name)
    return tuple(found)


def require(group: str, name: str) -> None:
    """Makes sure that there is a model or an optimizer of a name.

    Raises:
        SettingsError: there is none.
    """
    if name not in SHIPPED[group] and name not in names(group):
        raise SettingsError(f"there is no {_WHAT[group]} {name!r}; {nearest(name, names(group))}")
