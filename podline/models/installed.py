"""Models of installed packages: any functional Keras model, made fit for Podline's training."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Generator, Sequence
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.models.functional import Functional
from keras.src.random import seed_generator

from podline import entry_points
from podline.errors import SettingsError
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.stock import exportable
from podline.recipes.networks import MODELS
from podline.recipes.settings import ModelSettings

_NAMES = "object_name_uids"
_BUILDING = threading.Lock()


def installed_model(
    settings: ModelSettings,
    image_shape: tuple[int, int, int],
    classes: int,
    scale: Sequence[float],
    offset: Sequence[float],
    seed: int,
) -> keras.Model:
    """The model that an installed package's function builds, from uint8 images to logits.

    In front of it comes the normalisation, so the function's own input is float32 of the images' shape. Its batch norm
    and dropout become those that replicas share, and kernels get the L2 of ``l2_layers``. Its first weights depend on
    the seed and on the order in which it makes its layers.

    Args:
        settings: the recipe's; ``kind`` is the entry point's name.
        image_shape: (height, width, channels).
        classes: number of logits.
        scale: per channel; pixels are multiplied by it …
        offset: … and this is added.
        seed: of weights and dropout.

    Raises:
        SettingsError: there is no such entry point, it fails, or what it gives is no functional model from images of
            this shape to that many logits; a prefix in ``l2_layers`` that fits no layer.
    """
    if settings.data_format != "channels_last":
        raise SettingsError(f"model {settings.kind}: data_format={settings.data_format} vs channels_last that it takes")
    build = entry_points.named(MODELS, settings.kind, "model")
    with _by_seed(seed):
        try:
            made = build(image_shape, classes, settings)
        except Exception as error:
            raise SettingsError(f"model {settings.kind}: {entry_points.reason(error)}") from error
        _require_fit(made, settings, image_shape, classes)
        image = keras.Input(image_shape, dtype="uint8", name="image")
        values: Any = {"scale": list(scale), "offset": list(offset)}
        normalised = keras.layers.Rescaling(**values, name="normalise")(image)
        regularised: list[str] = []
        # What clone_model does, but it would make another input.
        logits = keras.Model(made.inputs, made.outputs)._run_through_graph(
            [normalised], operation_fn=lambda layer: _fit_layer(layer, settings, regularised)
        )
        _require_regularised(settings, made, regularised)
        flat = keras.Model(image, keras.tree.flatten(logits)[0], name=settings.kind)
    return from_architecture(exportable(flat).to_json(), seed)


def from_architecture(text: str, seed: int) -> keras.Model:
    """A model with fresh weights by its ``architecture.json``; the package that it came from is not needed.

    Args:
        text: what Keras's ``to_json`` gave of it, with stock layers.
        seed: of weights and dropout; the weights are those that training began with, if that seed is the recipe's.
    """
    with _by_seed(seed):
        return keras.models.clone_model(keras.models.model_from_json(text), clone_function=_of_whole_batches)


def _require_regularised(settings: ModelSettings, made: keras.Model, regularised: Sequence[str]) -> None:
    for prefix in settings.l2_layers:
        if not any(name.startswith(prefix) for name in regularised):
            names = ", ".join(layer.name for layer in made.layers if "kernel_regularizer" in layer.get_config())
            raise SettingsError(f"l2_layers: no layer's name starts with {prefix!r}; there are {names}")


def _require_fit(made: Any, settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> None:
    if not isinstance(made, Functional | keras.Sequential):
        raise SettingsError(
            f"model {settings.kind}: its function gives a {type(made).__name__} vs a functional Keras model"
        )
    found, wanted = (made.input_shape, made.output_shape), ((None, *image_shape), (None, classes))
    if found != wanted:
        raise SettingsError(
            f"model {settings.kind}: it goes from {found[0]} to {found[1]} vs from {wanted[0]} to {wanted[1]}"
        )


def _fit_layer(layer: Any, settings: ModelSettings, regularised: list[str]) -> Any:
    config = layer.get_config()
    if "kernel_regularizer" in config and settings.l2_layers and layer.name.startswith(settings.l2_layers):
        config["kernel_regularizer"] = keras.regularizers.L2(settings.l2)
        regularised.append(layer.name)
    return type(layer).from_config(config)


def _of_whole_batches(layer: Any) -> Any:
    """A layer, or the one that computes the same on any number of replicas."""
    kind = type(layer)
    if kind is keras.layers.BatchNormalization and len(layer.input.shape) == 4 and layer.axis in (-1, 3):
        kind = FusedBatchNormalization
    elif kind is keras.layers.Dropout:
        kind = BatchDropout
    return kind.from_config(layer.get_config())


@contextlib.contextmanager
def _by_seed(seed: int) -> Generator[None]:
    """Keras draws seeds, and counts the names of layers without one, as if this process had done nothing else.

    Its own generator is Python's, from which other threads draw meanwhile.
    """
    with _BUILDING:
        names, own = global_state.get_global_attribute(_NAMES), seed_generator.python_random
        global_state.set_global_attribute(_NAMES, None)
        seed_generator.python_random = random.Random(seed)
        try:
            yield
        finally:
            seed_generator.python_random = own
            global_state.set_global_attribute(_NAMES, names)
