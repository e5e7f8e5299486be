"""The precision of a network's layers; weights, statistics, loss and logits are always float32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.recipes.settings import Precision

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""Keras's policy for each precision, with float32 weights."""
_CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
_AMPERE = (8, 0)  # the first compute capability of NVIDIA's GPUs with bfloat16


def policy(precision: Precision) -> str:
    """Return Keras's policy for a recipe's precision, on the devices of this process.

    Raises:
        SettingsError: bfloat16 would be emulated.
    """
    emulated = "" if precision == "float32" else _emulated_by()
    if precision == "bfloat16" and emulated:
        raise SettingsError(
            f"precision=bfloat16 vs {emulated}: it would be emulated, and slower; use precision=auto or float32"
        )
    return POLICIES["float32" if precision == "float32" or emulated else "bfloat16"]


@contextlib.contextmanager
def policy_of_layers(name: str) -> Iterator[None]:
    """Set the policy of new layers that name no policy of their own, while the body runs."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _emulated_by() -> str:
    """Return the first device without native bfloat16, and the reason; empty if all have it."""
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
    """Return the CPU's feature flags, by Linux's names; empty where the system does not list them."""
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
