"""Names of the strategies, which define where a model runs. Needs no TensorFlow.

=============== ====================================================================================================
name            where
=============== ====================================================================================================
``auto``        the GPUs of this machine if it has any, else its CPU
``cpu``         the CPU, as one device
``cpu:N``       the CPU as N logical devices with a replica each, for example to try 8 replicas as on a TPU
``gpu``         the GPU of this machine; with several GPUs, a replica on each
``workers``     several processes, started by a launcher; each uses the devices as with ``auto``
``tpu``         the TPU of this machine
``tpu:NAME``    a TPU by its name or address
=============== ====================================================================================================

:mod:`podline.training.devices` turns a name into devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from podline.base.frozen import name_check

WORKERS = "workers"
NAMES = "auto, cpu, cpu:N, gpu, workers, tpu or tpu:NAME"
PATTERN = r"auto|cpu(:[1-9][0-9]{0,2})?|gpu|workers|tpu(:\S+)?"
checked = name_check("strategy", PATTERN, NAMES)


# Pattern of a driver's device files → name of the accelerator.
_NODES = {"dev/nvidia[0-9]*": "an NVIDIA GPU", "dev/kfd": "an AMD GPU", "dev/accel[0-9]*": "a TPU"}


def accelerators(root: Path = Path("/")) -> list[str]:
    """Return a text per kind of accelerator here, such as ``a TPU (/dev/accel0)``, even if TensorFlow sees none."""
    found = [(what, sorted(root.glob(pattern))) for pattern, what in _NODES.items()]
    return [f"{what} (/{nodes[0].relative_to(root)})" for what, nodes in found if nodes]


StrategyName = Annotated[str, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^({PATTERN})$"})]
