"""The settings of a network."""

from __future__ import annotations

import functools
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, omitted
from podline.recipes.bounds import NAME
from podline.recipes.uses import require_effects

Precision = Literal["float32", "bfloat16", "auto"]
M = TypeVar("M", bound=Frozen)


def l2_has_layers(model: M) -> M:
    """Check that a network has both ``l2`` and ``l2_layers``, or neither."""
    l2, layers = (dict(model)[name] for name in ("l2", "l2_layers"))
    if bool(l2) != bool(layers):
        raise ValueError(f"l2={l2} vs l2_layers={list(layers)}: give both or neither")
    return model


class ModelSettings(Frozen):
    """The network.

    Attributes:
        kind: ``linear`` (one dense layer on the pixels), ``resnet`` (small and fast), ``mobilenetv2``, a network of
            docs/how-to/fine-tune.md, or a network of an installed package (docs/how-to/model.md).
        width: factor for the number of channels of every layer.
        depth: residual blocks per stage of the resnet.
        activation: activation of the resnet: ``relu``, or ``gelu``, which is 10 % slower and better on CIFAR-10.
        dropout: share of the classifier's features that training sets to zero.
        l2: the loss includes this factor times the sum of squares of the kernels in ``l2_layers``.
        l2_layers: prefixes of layer names; ``podline models describe`` lists the names.
        data_format: ``channels_first`` works only on GPUs.
        weights: ``imagenet`` for the published weights of a network of docs/how-to/fine-tune.md, unless the run begins
            with ``init`` or ``further``.
        normalisation: how pixels are normalised. ``auto``: as the network's published weights expect, else ``data``;
            ``data``: by mean and deviation of the training images; ``imagenet``: by mean and deviation of ImageNet;
            ``symmetric``: -1 to 1; ``unit``: 0 to 1; ``none``: 0 to 255.
        options: options of an installed package's model, by name.
    """

    kind: str = Field(default="resnet", pattern=NAME)
    width: float = Field(default=1.0, gt=0, le=8)
    depth: int = Field(default=1, ge=1, le=20)
    activation: Literal["relu", "gelu"] = omitted("relu")
    dropout: float = Field(default=0.0, ge=0, lt=1)
    l2: float = Field(default=0.0, ge=0)
    l2_layers: tuple[str, ...] = ()
    data_format: Literal["channels_last", "channels_first"] = "channels_last"
    weights: Literal["none", "imagenet"] = omitted("none")
    normalisation: Literal["auto", "data", "imagenet", "symmetric", "unit", "none"] = omitted("auto")
    options: dict[str, Json] = omitted({})

    _l2_has_layers = model_validator(mode="after")(l2_has_layers)
    _effects = model_validator(mode="after")(functools.partial(require_effects, "model"))

    @model_validator(mode="after")
    def _published_for_one_width(self) -> ModelSettings:
        if self.weights != "none" and self.width != 1:
            raise ValueError(
                f"weights={self.weights} vs width={self.width}: these weights are published for width 1; give width=1, "
                "or weights=none"
            )
        return self
