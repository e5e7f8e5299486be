"""Lists settings that have an effect only with certain values of another setting, for checks and for changes.

Settings without effect are refused, because they would give another run name to the same training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from podline.base.frozen import Frozen, Json
from podline.recipes.parts import LOSSES, MODELS, OPTIMIZERS
from podline.recipes.published_weights import PUBLISHED

S = TypeVar("S", bound=Frozen)


class Use(NamedTuple):
    """The values of another setting with which a setting has an effect.

    Attributes:
        field: the other setting, in the same section.
        values: the values with which there is an effect; empty for all values except 0, false and none.
    """

    field: str
    values: tuple[str, ...] = ()


_WIDE = Use("kind", ("resnet", "mobilenetv2", "mobilenetv3-small", "mobilenetv3-large"))
_RESNET, _FOCAL, _MUON = (Use("kind", (kind,)) for kind in ("resnet", "focal", "muon"))
_EXPONENTIAL, _PLATEAU, _RESTARTS, _STEP, _POLYNOMIAL = (
    Use("kind", (kind,)) for kind in ("exponential", "plateau", "restarts", "step", "polynomial")
)

USES: Mapping[str, Mapping[str, Use]] = {
    "model": {"width": _WIDE, "depth": _RESNET, "activation": _RESNET, "weights": Use("kind", tuple(PUBLISHED))},
    "optimizer": {
        "momentum": Use("kind", ("sgd", "rmsprop", "muon", "keras_muon")),
        "nesterov": Use("kind", ("sgd", "keras_muon")),
        "adam_rate": _MUON,
    },
    "loss": {"gamma": _FOCAL},
    "schedule": {
        "final": Use("kind", ("cosine", "restarts", "polynomial", "one_cycle")),
        "decay": _EXPONENTIAL,
        "decay_every": _EXPONENTIAL,
        "power": _POLYNOMIAL,
        "period": _RESTARTS,
        "period_factor": _RESTARTS,
        "peak_factor": _RESTARTS,
        "boundaries": _STEP,
        "shares": _STEP,
        "plateau": _PLATEAU,
    },
    "augmentation": {"alternate": Use("flip"), "crop_ratio": Use("crop"), "magnitude": Use("rand_augment")},
}
"""Section → setting → the values of another setting that it needs."""

# Podline's kinds; the function of an installed kind may read any setting.
_KNOWN: Mapping[str, Collection[str]] = {
    "model": MODELS.shipped,
    "optimizer": OPTIMIZERS.shipped,
    "loss": LOSSES.shipped,
}


def has_effect(section: str, name: str, other: Json) -> bool:
    """Return whether a setting has an effect if the setting that it depends on has the value ``other``."""
    values = USES[section][name].values
    if not values:
        return bool(other)
    return other in values or other not in _KNOWN.get(section, (other,))


def require_effects(section: str, settings: S) -> S:
    """Check that all settings that differ from the default have an effect.

    Raises:
        ValueError: a setting has no effect; the message says which other setting it needs.
    """
    values = dict(settings)
    for name, use in USES[section].items():
        value, other = values[name], values[use.field]
        if value != type(settings).model_fields[name].default and not has_effect(section, name, other):
            needed = f"{use.field}={' or '.join(use.values)}" if use.values else f"{use.field} too"
            got = name if isinstance(value, Frozen) else f"{name}={value}"
            raise ValueError(f"got {got} with {use.field}={other}, expected {needed}; or leave {name} out")
    return settings
