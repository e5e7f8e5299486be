"""Chooses the precision of a network's layers; weights, statistics, loss and logits are always float32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.recipes.settings import Precision

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""Precision → Keras's dtype policy, which has float32 weights."""
_CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
_AMPERE = (8, 0)  # the first compute capability of NVIDIA's GPUs with bfloat16


def policy(precision: Precision) -> str:
    """Return Keras's dtype policy for a recipe's precision on the devices of this process.

    Raises:
        SettingsError: the precision is ``bfloat16``, which a device would emulate.
    """
    emulated = "" if precision == "float32" else _emulated_by()
    if precision == "bfloat16" and emulated:
        raise SettingsError(
            f"precision=bfloat16 vs {emulated}: bfloat16 would be emulated and slow; use precision=auto or float32"
        )
    return POLICIES["float32" if precision == "float32" or emulated else "bfloat16"]


@contextlib.contextmanager
def policy_of_layers(name: str) -> Iterator[None]:
    """Set the default dtype policy of new layers while the body runs."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _emulated_by() -> str:
    """Describe the first device without native bfloat16; return an empty text if all devices have it."""
    if tf.config.list_logical_devices("TPU"):
        return ""
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        if details.get("compute_capability", _AMPERE) < _AMPERE:
            return f"{details.get('device_name', device.name)} with compute capability {details['compute_capability']}"
    if tf.config.list_logical_devices("GPU") or _CPU_FLAGS & cpu_flags():
        return ""
    return "a processor without AVX512_BF16 or AMX"


def cpu_flags(file: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the CPU's feature flags by their Linux names; empty if the system has no such list."""
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
