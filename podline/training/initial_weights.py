"""Initialises a training with weights from a file; matches layers by name and shape."""

# pyright: standard
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from podline.base.arrays import Array
from podline.base.errors import SettingsError
from podline.base.plurals import first_few
from podline.documents.initial_weights import InitialWeights, OtherShape
from podline.models.published_weights import published_layers
from podline.models.variables import by_layer, copy_weights, finish
from podline.models.weights_files import Layers, read_weights
from podline.recipes.settings import InitSettings, Recipe
from podline.stages.from_recipe import weights_sha256
from podline.store.contract import Store
from podline.training.state import TrainingState

_Variables = dict[str, Any]


def stored_layers(store: Store, recipe: Recipe) -> Layers:
    """Return a recipe's initial weights by layer; empty if the recipe names none.

    Raises:
        SettingsError: the file cannot be read, or its checksum is not that in the recipe.
        ArtifactError: the file is damaged.
    """
    init = recipe.init
    if init is None:
        return {}
    if init.published and recipe.pretrained:
        return published_layers(store, recipe.pretrained, init.checksum)
    file = Path(init.file)
    found = weights_sha256(file)
    if found != init.checksum:
        raise SettingsError(
            f"init={file} has sha256 {found[:12]}… vs {init.checksum[:12]}… in the run's recipe; bring that file "
            "back, or begin another run with --init"
        )
    return read_weights(file)


def take_weights(state: TrainingState, init: InitSettings, stored: Layers) -> InitialWeights:
    """Load weights into the model and its moving average, for layers of equal name and shapes.

    Either all variables of a layer are loaded, or none. A layer without a layer of the same path in the file is matched
    by the last component of its path, if this component is unique among the unmatched layers of model and file.

    Args:
        state: the state to change.
        init: the recipe's setting, with file and checksum of the weights.
        stored: the weights; see :func:`stored_layers`.

    Raises:
        SettingsError: no layer fits, or a value is not finite.
    """
    layers = by_layer(state.model)
    sources = _matched(stored, layers)
    taken, others = [], []
    parameters = 0
    for name, variables in layers.items():
        if name not in sources:
            continue
        values = _in_order(variables, stored[sources[name]])
        if values is None:
            shapes = [
                tuple(tuple(each.shape) for each in side)
                for side in (stored[sources[name]].values(), variables.values())
            ]
            others.append(OtherShape(layer=name, in_file=shapes[0], in_model=shapes[1]))
            continue
        for variable, value in zip(variables.values(), values, strict=True):
            with np.errstate(over="ignore"):
                finite = np.isfinite(value.astype(np.float32)).all()
            if not finite:
                raise SettingsError(
                    f"init={init.file}: {sources[name]} has values that are not finite in float32; choose other weights"
                )
            variable.assign(value)
        parameters += sum(value.size for value in values)
        taken.append(name)
    if not taken:
        found = first_few([name or "arrays without a layer" for name in stored], 3) or "none"
        raise SettingsError(
            f"init={init.file}: no layer of the file has the name and shapes of a layer of the model; the file has "
            f"{found}, the model has {first_few([*layers], 3)}; choose weights of this "
            "model"
        )
    finish(state.model)
    if state.average is not None:
        copy_weights(state.model, state.average)
    return InitialWeights(
        **init.model_dump(),
        parameters=parameters,
        taken=tuple(taken),
        other_shape=tuple(others),
        missing=tuple(name for name in layers if name not in sources),
        unused=tuple(name for name in stored if name not in sources.values()),
    )


def _matched(stored: Layers, layers: dict[str, _Variables]) -> dict[str, str]:
    """Map layers of the model to layers of the file: by full path, else by the last component, if it is unique."""
    sources = {name: name for name in layers if name in stored}
    single = [_unique(names) for names in (stored.keys() - sources.keys(), layers.keys() - sources.keys())]
    return sources | {name: single[0][last] for last, name in single[1].items() if last in single[0]}


def _unique(names: Any) -> dict[str, str]:
    """Map the last component of a layer's path to the full path, for components that only one layer has."""
    counts = Counter(name.rpartition("/")[2] for name in names)
    return {last: name for name in names if counts[last := name.rpartition("/")[2]] == 1}


def _in_order(variables: _Variables, stored: dict[str, Array]) -> list[Array] | None:
    """Return the stored values in the order of the variables, or None if they do not fit.

    Values are matched by name, by number if the file has numbers, else by shape. Names may differ, for
    example ``depthwise_kernel`` in Keras 2 and ``kernel`` in Keras 3.
    """
    shapes = [tuple(variable.shape) for variable in variables.values()]
    if variables.keys() == stored.keys():
        values = [stored[name] for name in variables]
    elif all(name.isdecimal() for name in stored):
        values = list(stored.values())
    else:
        by_shape = {value.shape: value for value in stored.values()}
        if len(by_shape) < len(stored) or len(set(shapes)) < len(shapes):
            return None
        values = [by_shape[shape] for shape in shapes if shape in by_shape]
    return values if len(stored) == len(shapes) and [value.shape for value in values] == shapes else None
