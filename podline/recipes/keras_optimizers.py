"""Lists the Keras optimizers that recipes can use, with classes and default learning rates. Needs no TensorFlow."""

from __future__ import annotations

KERAS_OPTIMIZERS = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adamax": "Adamax",
    "ftrl": "Ftrl",
    "keras_adafactor": "Adafactor",
    "keras_muon": "Muon",
    "lamb": "Lamb",
    "lion": "Lion",
    "nadam": "Nadam",
    "rmsprop": "RMSprop",
    "schedule_free_adamw": "ScheduleFreeAdamW",
}
"""Kind in recipes → class in ``keras.optimizers``; ``adafactor`` and ``muon`` are Podline's own optimizers."""
USUAL_RATES = {
    **dict.fromkeys(KERAS_OPTIMIZERS, 0.001),
    "sgd": 0.01,
    "schedule_free_adamw": 0.0025,
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
