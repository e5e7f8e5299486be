"""The optimizer of a recipe."""

from __future__ import annotations

import functools
from typing import Annotated

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, omitted
from podline.recipes.bounds import NAME
from podline.recipes.keras_optimizers import KERAS_OPTIMIZERS, OF_THE_RECIPE
from podline.recipes.uses import require_effects


class OptimizerSettings(Frozen):
    """The optimizer; settings that are not given have the optimizer's default.

    Attributes:
        kind: Keras's ``sgd``, ``adam``, ``adamw``, ``adadelta``, ``adagrad``, ``adamax``, ``ftrl``,
            ``keras_adafactor``, ``keras_muon``, ``lamb``, ``lion``, ``nadam``, ``rmsprop`` or
            ``schedule_free_adamw``; Podline's ``adafactor``, which needs little memory, and ``muon``
            (docs/how-to/train.md); or an optimizer of an installed package.
        momentum: momentum of ``sgd``, ``rmsprop``, ``muon`` and ``keras_muon``.
        nesterov: Nesterov's momentum; ``sgd`` and ``keras_muon`` only.
        weight_decay: each step first reduces every kernel by the learning rate times this share (AdamW). Kernels are
            weights with two axes or more, except weights called bias, beta, gamma, scale or alpha, and kernels that
            ``muon`` orthogonalises. The default is 0.004 for ``adamw`` and ``keras_muon``, else 0.
        clip_norm: upper bound of the norm of the whole batch's gradient; None for no bound.
        rates: prefix of layer names, with ``*`` for any letters → factor of the learning rate of these layers, for
            example ``{"stem": 0.1}``; the longest prefix that matches applies.
        adam_rate: for ``muon``: the rate of all variables except convolution kernels, as a multiple of the learning
            rate.
        options: other arguments of the optimizer, for example ``{"beta_2": 0.98}``.
    """

    kind: str = Field(default="sgd", pattern=NAME)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    nesterov: bool | None = None
    weight_decay: float | None = Field(default=None, ge=0)
    clip_norm: float | None = Field(default=None, gt=0)
    rates: dict[str, Annotated[float, Field(ge=0, le=1_000)]] = omitted({})
    adam_rate: float = omitted(0.1, gt=0)
    options: dict[str, Json] = omitted({})

    _effects = model_validator(mode="after")(functools.partial(require_effects, "optimizer"))

    @model_validator(mode="after")
    def _options_are_no_settings(self) -> OptimizerSettings:
        for name in self.options if self.kind in KERAS_OPTIMIZERS else ():
            if name in OF_THE_RECIPE:
                raise ValueError(f"got options.{name}={self.options[name]}, expected {OF_THE_RECIPE[name]} instead")
        return self
