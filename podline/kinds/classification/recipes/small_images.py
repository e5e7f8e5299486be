"""Optimizers and schedules that the recipes for small images share."""

from __future__ import annotations

from podline.recipes.durations import Part
from podline.recipes.settings import OptimizerSettings, ScheduleSettings

# Decoupled weight decay: 5e-3 here equals an L2 term of 5e-4 in the loss, with a momentum of 0.9.
OPTIMIZER = OptimizerSettings(kind="sgd", momentum=0.9, nesterov=True, weight_decay=5e-3)
SCHEDULE = ScheduleSettings(kind="one_cycle", learning_rate=0.2, warmup=Part(share=0.2))

# After 8 epochs of CIFAR-10 the rates 0.12 and 0.24 gave equal accuracy within noise.
MUON = OptimizerSettings(kind="muon", momentum=0.6)
FALLING = ScheduleSettings(kind="one_cycle", learning_rate=0.15)
