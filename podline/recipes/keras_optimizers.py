"""Lists the Keras optimizers that recipes can use, with classes and default learning rates. Needs no TensorFlow."""

from __future__ import annotations

from typing import NamedTuple


class KerasOptimizer(NamedTuple):
    """An optimizer of Keras.

    Attributes:
        name: name of the class in ``keras.optimizers``.
        learning_rate: default learning rate of a recipe.
    """

    name: str
    learning_rate: float = 0.001


KERAS_OPTIMIZERS = {
    "sgd": KerasOptimizer("SGD", 0.01),
    "adam": KerasOptimizer("Adam"),
    "adamw": KerasOptimizer("AdamW"),
    "adadelta": KerasOptimizer("Adadelta"),
    "adagrad": KerasOptimizer("Adagrad"),
    "adamax": KerasOptimizer("Adamax"),
    "ftrl": KerasOptimizer("Ftrl"),
    "keras_adafactor": KerasOptimizer("Adafactor"),
    "keras_muon": KerasOptimizer("Muon"),
    "lamb": KerasOptimizer("Lamb"),
    "lion": KerasOptimizer("Lion"),
    "nadam": KerasOptimizer("Nadam"),
    "rmsprop": KerasOptimizer("RMSprop"),
    "schedule_free_adamw": KerasOptimizer("ScheduleFreeAdamW", 0.0025),
}
"""Kind in recipes → optimizer; the kinds ``adafactor`` and ``muon`` are Podline's own optimizers."""
USUAL_RATES = {
    **{kind: optimizer.learning_rate for kind, optimizer in KERAS_OPTIMIZERS.items()},
    "adafactor": 0.01,
    "muon": 0.05,
}
"""Kind of optimizer → default learning rate; optimizers of installed packages have 0.001."""
OF_THE_RECIPE = {
    "learning_rate": "schedule.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "adam_weight_decay": "optimizer.weight_decay",
    "global_clipnorm": "optimizer.clip_norm",
    "momentum": "optimizer.momentum",
    "nesterov": "optimizer.nesterov",
    "use_ema": "ema_decay",
    "ema_momentum": "ema_decay",
    "gradient_accumulation_steps": "accumulate",
}
"""Argument of Keras's optimizers → the recipe's setting for it."""
