"""What is asked of the devices before training: determinism, memory on demand, a strategy, a batch that suits them."""

from __future__ import annotations

import keras
import tensorflow as tf

# The layout of a TPU's matrix unit: 8 × 128 tiles; see https://cloud.google.com/tpu/docs/performance-guide
_TPU_BATCH = 128
_TPU_SUBLANE = 8


def prepare(seed: int, *, deterministic: bool) -> None:
    """Sets this process up for one run: a clean Keras session, every seed, memory on demand, determinism if asked for.

    Args:
        seed: of weights, dropout, and all else that draws from a global generator.
        deterministic: TensorFlow's operations give the same bits every time. It cannot be taken back in this process.
    """
    # Layers and generators without a name of their own are numbered from the start of the session.
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def choose_strategy() -> tf.distribute.Strategy:
    """The strategy that training runs under: one device, the first GPU if there is one."""
    return tf.distribute.get_strategy()


def describe(strategy: tf.distribute.Strategy) -> str:
    """The devices of a strategy in words: ``cpu``, ``gpu``, ``8 × tpu``."""
    kind = _kind(strategy)
    replicas = strategy.num_replicas_in_sync
    return kind if replicas == 1 else f"{replicas} × {kind}"


def _kind(strategy: tf.distribute.Strategy) -> str:
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return "tpu"
    return "gpu" if tf.config.list_logical_devices("GPU") else "cpu"


def batch_advice(batch_size: int, replicas: int, *, tpu: bool) -> str | None:
    """A warning about a batch that wastes a part of a TPU, or None; other devices take any size equally well.

    Args:
        batch_size: examples in a step, over all replicas.
        replicas: cores that share them.
        tpu: whether the cores are a TPU's.
    """
    per_core = batch_size // replicas
    if not tpu or per_core % _TPU_BATCH == 0:
        return None
    if per_core % _TPU_SUBLANE == 0:
        return (
            f"batch_size={batch_size}: {per_core} per TPU core, a multiple of {_TPU_SUBLANE} but not of {_TPU_BATCH}; "
            f"part of each core's memory is padding; batch_size={_up(per_core, _TPU_BATCH) * replicas} fills it"
        )
    return (
        f"batch_size={batch_size}: {per_core} per TPU core, no multiple of {_TPU_BATCH} (or at least of "
        f"{_TPU_SUBLANE}): every core computes on padding; batch_size={_up(per_core, _TPU_BATCH) * replicas} fills it"
    )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
