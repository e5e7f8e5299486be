"""Names of the strategies: where a model runs. Needs no TensorFlow.

=============== ====================================================================================================
name            where
=============== ====================================================================================================
``auto``        the GPUs of this machine if it has any, else its CPU
``cpu``         the CPU, as one device
``cpu:N``       the CPU as N logical devices with a replica of the model on each: what 8 cores of a TPU do, to try out
``gpu``         the GPU of this machine, or all of them with a replica on each
``workers``     several processes, which find each other by ``TF_CONFIG``; each has what ``auto`` gives it
``tpu``         the TPU of this machine
``tpu:NAME``    a TPU by its name or address
=============== ====================================================================================================

:mod:`podline.training.devices` turns a name into devices.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

WORKERS = "workers"
NAMES = "auto, cpu, cpu:N, gpu, workers, tpu or tpu:NAME"
PATTERN = r"auto|cpu(:[1-9][0-9]{0,2})?|gpu|workers|tpu(:\S+)?"


def checked(name: str) -> str:
    """A name that is one.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(PATTERN, name):
        raise ValueError(f"there is no strategy {name!r}; use {NAMES}")
    return name


StrategyName = Annotated[str, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^({PATTERN})$"})]
