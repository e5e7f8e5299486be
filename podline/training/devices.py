"""Prepares the devices: determinism, memory growth, strategy, batch size.

A process creates each strategy once, in this module.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.base.progress import Reporter
from podline.settings import environment
from podline.settings import machine as settings
from podline.settings.cluster import Cluster
from podline.settings.strategies import accelerators
from podline.training.workers import Agreement, gathered

# The layout of a TPU's matrix unit: 8 × 128 tiles; see https://cloud.google.com/tpu/docs/performance-guide
_TPU_BATCH = 128
_TPU_SUBLANE = 8

# Workers wait this long in an all-reduce, for example while a slower worker evaluates or the chief publishes the model.
# A killed or rebooted worker is detected at once.
_SUM_SECONDS = 600

# The remedy on a machine whose GPU TensorFlow does not see.
_INSTALL = "for a GPU install NVIDIA's driver and libraries (make setup-gpu, or the extra gpu; see docs/how-to/gpu.md)"


def prepare(seed: int, *, deterministic: bool, strategy: str = "auto") -> tf.distribute.Strategy:
    """Configure this process for one run: devices, a clean Keras session, seeds and, on request, determinism.

    Args:
        seed: of weights, dropout and all other global random generators.
        deterministic: make TensorFlow's operations reproducible to the bit; this process cannot undo it.
        strategy: where the model runs; see :mod:`podline.settings.strategies`.

    Returns:
        The strategy that the model is built and runs under. For one CPU or GPU it is TensorFlow's default strategy.

    Raises:
        SettingsError: the devices do not exist or are refused by settings, or this process already uses others.
        WorkerLostError: some workers did not join in time.
    """
    first = not _strategy.cache_info().currsize
    made = _strategy(strategy)
    # Keras numbers unnamed layers and generators from the start of the session. The first session has no memory to
    # free, and the search for memory to free takes a quarter of a second.
    keras.utils.clear_session(free_memory=not first)
    keras.utils.set_random_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    return made


@functools.cache
def _strategy(name: str) -> tf.distribute.Strategy:
    """Return the named strategy; the first one of a process decides which devices TensorFlow sees."""
    kind, _, detail = name.partition(":")
    match kind:
        case "cpu":
            # The CPU devices share memory: a reduction on one device is faster than a ring, and its order is fixed.
            return _mirrored(_cpus(int(detail or 1)), tf.distribute.ReductionToOneDevice())
        case "gpu":
            return _mirrored(_gpus(name))
        case "workers":
            return _workers(settings.cluster())
        case "tpu":
            return _tpu(detail)
        case _:
            return _mirrored(_gpus(name) if tf.config.list_physical_devices("GPU") else _fallen_back())


def _fallen_back() -> list[str]:
    if settings.load().require_accelerator:
        raise SettingsError(
            f"strategy=auto: {_unseen()} and require_accelerator forbids the CPU; {_INSTALL}, or ask for strategy=cpu"
        )
    return _cpus(1)


def _shown() -> list[str]:
    """Return a description of each kind of accelerator in the machine; empty if the user hides the GPUs."""
    return [] if environment.gpus_are_hidden() else accelerators()


def _unseen() -> str:
    there = ", ".join(_shown()) or "the machine shows none either"
    return f"TensorFlow sees no GPU ({there})"


def fallback(strategy: str) -> str:
    """Return a warning if ``auto`` chose the CPU although the machine has an accelerator, else an empty string."""
    if strategy != "auto" or tf.config.list_physical_devices("GPU"):
        return ""
    there = ", ".join(_shown())
    return there and (
        f"THE MODEL RUNS ON THE CPU: this machine has {there}, and TensorFlow cannot use it; {_INSTALL}; ask for "
        "strategy=tpu on a TPU VM, or for strategy=cpu to use the CPU; the setting require_accelerator turns this "
        "warning into an error"
    )


def _mirrored(devices: list[str], reduction: tf.distribute.CrossDeviceOps | None = None) -> tf.distribute.Strategy:
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def _cpus(count: int) -> list[str]:
    """Return the names of ``count`` logical CPU devices; hide the GPUs from TensorFlow."""
    with _before_devices(f"cpu:{count}"):
        if tf.config.list_physical_devices("GPU"):
            tf.config.set_visible_devices([], "GPU")
        [cpu] = tf.config.list_physical_devices("CPU")
        if len(tf.config.get_logical_device_configuration(cpu) or [cpu]) < count:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"/device:CPU:{number}" for number in range(count)]


def _gpus(name: str) -> list[str]:
    """Return the names of all GPUs, with memory growth enabled."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SettingsError(f"strategy={name}: {_unseen()}; {_INSTALL}, or ask for strategy=cpu or auto")
    with _before_devices(name):
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/device:GPU:{number}" for number in range(len(gpus))]


@contextlib.contextmanager
def _before_devices(strategy: str) -> Iterator[None]:
    """Convert TensorFlow's error about devices that already exist, for example in a notebook, to a SettingsError."""
    try:
        yield
    except RuntimeError as error:
        raise SettingsError(
            f"strategy={strategy}: TensorFlow has already created the devices of this process ({error}); choose the "
            "strategy before TensorFlow runs, or restart the process or notebook kernel"
        ) from error


def _workers(cluster: Cluster) -> tf.distribute.Strategy:
    """Return the strategy of several processes once all have started; a single process gets the strategy ``auto``."""
    if len(cluster.addresses) == 1:
        return _strategy("auto")
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=_SUM_SECONDS)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.place,
        rpc_layer="grpc",
    )
    return gathered(lambda: tf.distribute.MultiWorkerMirroredStrategy(resolver, options), cluster)


def _tpu(name: str) -> tf.distribute.Strategy:
    return tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu=name or "local"))


def agreement(strategy: tf.distribute.Strategy) -> Agreement:
    """Return the object that makes decisions common to all processes of a strategy."""
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return Agreement(strategy, settings.cluster() if several else None)


def require_divisible(batch_size: int, accumulate: int, strategy: tf.distribute.Strategy) -> None:
    """Check that a batch size is divisible by the number of replicas × ``accumulate``.

    Raises:
        SettingsError: the batch size is not divisible; the message names the nearest sizes that are.
    """
    replicas = strategy.num_replicas_in_sync
    parts = replicas * accumulate
    if batch_size % parts:
        below, above = batch_size // parts * parts, _up(batch_size, parts)
        near = f"{below} or {above}" if below else f"{above}"
        raise SettingsError(
            f"batch_size={batch_size} is not divisible by {replicas} replicas ({describe(strategy)})"
            f"{f' × accumulate={accumulate}' if accumulate > 1 else ''}: use batch_size={near}, or another strategy"
        )


def describe(strategy: tf.distribute.Strategy) -> str:
    """Describe the devices of a strategy: ``cpu``, ``gpu``, ``8 × tpu``."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        kind = "tpu"
    else:
        kind = "gpu" if tf.config.list_logical_devices("GPU") else "cpu"
    replicas = strategy.num_replicas_in_sync
    return kind if replicas == 1 else f"{replicas} × {kind}"


def warn_of_padding(
    setting: str, batch_size: int, strategy: tf.distribute.Strategy, reporter: Reporter, accumulate: int = 1
) -> None:
    """Warn if padding would waste a part of a strategy's TPU; see :func:`batch_advice`."""
    tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    if advice := batch_advice(setting, batch_size, strategy.num_replicas_in_sync * accumulate, tpu=tpu):
        reporter.warn(advice)


def batch_advice(setting: str, batch_size: int, parts: int, *, tpu: bool) -> str | None:
    """Return a warning if padding would waste a part of a TPU, which computes one of ``parts`` of a batch at a time."""
    per_core = batch_size // parts
    if not tpu or per_core % _TPU_BATCH == 0:
        return None
    waste = "every core computes on padding" if per_core % _TPU_SUBLANE else "part of each core's memory is padding"
    return (
        f"{setting}={batch_size}: {per_core} per TPU core, expected a multiple of {_TPU_BATCH} (at least of "
        f"{_TPU_SUBLANE}): {waste}; {setting}={_up(per_core, _TPU_BATCH) * parts} fills it"
    )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
