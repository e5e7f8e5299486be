"""Classifies the errors of TensorFlow as transient or permanent by their messages.

The messages come from practice and from sources: the issue trackers of TensorFlow, XLA, JAX, PyTorch/XLA and their
users (the tests name the threads), the error codes in XLA's documentation, libtpu's initialisation
(``xla/stream_executor/tpu/tpu_initializer_helper.cc``), and errors of TensorFlow 2.21 on a CPU. The first match wins,
so specific patterns precede vague ones. For example, "Unable to initialize backend 'tpu': ABORTED: The TPU is already
in use" must match the pattern of a TPU in use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podline.base.errors import (
    ArtifactError,
    DivergenceError,
    PodlineError,
    RefusedOperationError,
    SettingsError,
    TpuGoneError,
    TpuInUseError,
    TpuSetupError,
    TpuUnhealthyError,
    TransientError,
    UnexplainedError,
)


@dataclass(frozen=True)
class KnownMessage:
    """A pattern of TensorFlow's messages, the meaning for people, and the error class to raise."""

    pattern: str
    error: type[PodlineError]
    meaning: str


KNOWN: tuple[KnownMessage, ...] = (
    KnownMessage(
        r"already in use by|already in used by|(accel|vfio)\S*.{0,80}device or resource busy",
        TpuInUseError,
        "another process uses the TPU",
    ),
    # Permanent errors.
    KnownMessage(
        r"ran out of memory in memory space|exceeded hbm capacity|attempting to (reserve|allocate) .{0,80}not possible|"
        r"hbm_out_of_memory|allocation .{0,80}exceeds .{0,40}hbm",
        SettingsError,
        "the step does not fit into the TPU's memory; lower batch_size, or use a smaller model",
    ),
    KnownMessage(
        r"oom when allocating|out of memory (while trying to )?allocat",
        SettingsError,
        "the step does not fit into this machine's memory; lower batch_size, or use a smaller model",
    ),
    KnownMessage(
        r"unsupported operations when trying to compile|opkernel for xla_|unsupported (data )?type for tpu|"
        r"not supported (on|inside) (the )?tpu|op type not registered|could not find registered transfer manager|"
        r"tpu compile permanent error",
        SettingsError,
        "the model uses an operation that a TPU does not support",
    ),
    KnownMessage(
        r"must be a compile-time constant|not support (un)?bounded dynamic|must have a fixed size for dimension|"
        r"dynamic (input )?(shape|dimension|size)s? .{0,80}(not (supported|implemented)|unsupported)",
        SettingsError,
        "the model has dynamic shapes, which a TPU does not support",
    ),
    KnownMessage(
        r"opkernel was registered to support op 'configuredistributedtpu'|please provide a tpu name to connect to",
        TpuSetupError,
        "this machine has no TPU, or its TensorFlow is not the build for TPUs (install the extra `tpu`)",
    ),
    KnownMessage(
        r"(accel|vfio)\S*.{0,80}permission denied|permission denied.{0,80}/dev/(accel|vfio)",
        TpuSetupError,
        "this user has no permission to open the TPU's device",
    ),
    KnownMessage(
        r"libtpu\S* cannot open shared object|unexpected pjrt_\w+ size|pjrt api version",
        TpuSetupError,
        "this machine's libtpu does not fit its TensorFlow; install the extra `tpu`",
    ),
    KnownMessage(
        r"invalid \S*slice_builder\S* specified|expected \d+ worker addresses",
        TpuSetupError,
        "environment variables such as TPU_PROCESS_ADDRESSES do not describe the slice of this machine",
    ),
    KnownMessage(
        r"received a label value of|label.{0,40}out of range|indices\[.{0,40}is not in \[0,",
        ArtifactError,
        "the label of an example is not a class of the model",
    ),
    KnownMessage(r"tensor had (nan|inf|-inf)", DivergenceError, "the loss is no longer a finite number"),
    KnownMessage(
        r"incompatible shapes|shapes must be equal|must be divisible|not divisible by|"
        r"dimensions (must be equal|of inputs should match)",
        SettingsError,
        "two tensors of the model or its input have sizes that do not fit",
    ),
    # Transient errors.
    KnownMessage(
        r"preempt|unexpected peer|incarnation|session \S+ is not found|shutting down|shut ?down barrier|sigterm|"
        r"set to error in coordination service|lame workers found",
        TpuGoneError,
        "the TPU's machine is being preempted or was replaced",
    ),
    KnownMessage(
        r"socket closed|failed to connect to (all (addresses|subchannels)|remote)|"
        r"connection (reset|refused|timed out)|broken pipe|unable to (establish connection|find destination)|"
        r"deadline ?exceeded|rpc failed|name resolution|transport (is )?clos|keepalive|barrier timed out|"
        r"heartbeat timeout",
        TpuUnhealthyError,
        "the connection to the TPU was lost",
    ),
    KnownMessage(
        r"unable to initialize backend|tpu initialization failed|failed to (get|build|find).{0,60}(topology|mesh)|"
        r"slice health check|core halted|device halted|bad hardware status|tpu system has not been initialized|"
        r"no tpu devices|tpus? not found|unhealthy|launch group",
        TpuUnhealthyError,
        "the TPU did not start, or stopped working",
    ),
)

# Classes of tf.errors for messages without a pattern: transient, unclear, permanent.
_PASSES = frozenset({"UnavailableError", "AbortedError", "DeadlineExceededError", "CancelledError"})
_UNCLEAR = frozenset({"InternalError", "UnknownError", "DataLossError", "FailedPreconditionError", "OpError"})
_STAYS = frozenset(
    {
        "AlreadyExistsError",
        "InvalidArgumentError",
        "NotFoundError",
        "OutOfRangeError",
        "PermissionDeniedError",
        "ResourceExhaustedError",
        "UnauthenticatedError",
        "UnimplementedError",
    }
)
_LENGTH = 500


def explain(kind: str, message: str) -> PodlineError | None:
    """Return Podline's error for an exception of TensorFlow.

    Args:
        kind: the name of the exception's class.
        message: the exception's message.

    Returns:
        The error to raise instead, which contains the message; None if this module knows neither class nor message.
    """
    line = " ".join(message.split())
    line = line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…"
    of_runtime = kind in _PASSES | _UNCLEAR | _STAYS or kind.endswith("RuntimeError")
    for known in KNOWN:
        # Only an error of the runtime can be transient, not a ValueError with a similar message.
        can_be = of_runtime or not issubclass(known.error, TransientError)
        if can_be and re.search(known.pattern, message, re.IGNORECASE | re.DOTALL):
            return known.error(f"{known.meaning} ({kind}: {line})")
    if kind in _PASSES:
        return TpuUnhealthyError(f"the TPU did not answer ({kind}: {line})")
    if kind in _UNCLEAR:
        return UnexplainedError(f"TensorFlow failed with an unknown error; one new attempt follows ({kind}: {line})")
    if kind in _STAYS:
        return RefusedOperationError(f"an operation of the model or of its input is invalid ({kind}: {line})")
    return None
