"""Names of the strategies: where a model runs. Needs no TensorFlow.

=============== ====================================================================================================
name            where
=============== ====================================================================================================
``auto``        the GPUs of this machine if it has any, else its CPU
``cpu``         the CPU, as one device
``cpu:N``       the CPU as N logical devices with a replica of the model on each: what 8 cores of a TPU do, to try out
``gpu``         the GPU of this machine, or all of them with a replica on each
``workers``     several processes, started by a launcher; each has what ``auto`` gives it
``tpu``         the TPU of this machine
``tpu:NAME``    a TPU by its name or address
=============== ====================================================================================================

:mod:`podline.training.devices` turns a name into devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from podline.frozen import name_check

WORKERS = "workers"
NAMES = "auto, cpu, cpu:N, gpu, workers, tpu or tpu:NAME"
PATTERN = r"auto|cpu(:[1-9][0-9]{0,2})?|gpu|workers|tpu(:\S+)?"
checked = name_check("strategy", PATTERN, NAMES)


# Nodes of drivers for NVIDIA's and AMD's GPUs and for TPUs, and what each is.
_NODES = {"dev/nvidia[0-9]*": "an NVIDIA GPU", "dev/kfd": "an AMD GPU", "dev/accel[0-9]*": "a TPU"}


def accelerators(root: Path = Path("/")) -> list[str]:
    """Return the accelerators that this machine shows, whether or not TensorFlow can use them."""
    found = [(what, sorted(root.glob(pattern))) for pattern, what in _NODES.items()]
    return [f"{what} (/{nodes[0].relative_to(root)})" for what, nodes in found if nodes]


StrategyName = Annotated[str, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^({PATTERN})$"})]
