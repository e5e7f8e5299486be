"""What TensorFlow says, and what is made of it: messages as they stand in the field's reports.

Several are from issue trackers: marin-community/marin#2618, AI-Hypercomputer/tpu-recipes#151, pytorch/xla#1735,
leondgarse/keras_cv_attention_models#8, erfanzar/EasyDeL#166, google-deepmind/alphafold3#656,
Lightning-AI/pytorch-lightning#20244, marin-community/levanter#1127, tensorflow/tensorflow#57760 and #38190,
AI-Hypercomputer/gpu-recipes#2, EleutherAI/architecture-objective#26, megagonlabs/t5-japanese#1.
"""

from __future__ import annotations

import re

import pytest

from podline.base import errors
from podline.tpu.tensorflow_errors import KNOWN, explain

# Of each class of ours: TensorFlow's class and its message, or what of it counts.
FIELD = {
    errors.TpuInUseError: r"""
AbortedError: ABORTED: The TPU is already in use by process with pid 2239507. Not attempting to load libtpu.so
UnknownError: TPU initialization failed: open(/dev/vfio/0): Device or resource busy
""",
    errors.SettingsError: r"""
ResourceExhaustedError: Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.
ResourceExhaustedError: From /job:tpu_w:\nAttempting to reserve 3.95G at the bottom of memory. That was not possible
ResourceExhaustedError: OOM when allocating tensor with shape[1048576,1048576] and type float on /job:localhost
ResourceExhaustedError: Out of memory while trying to allocate 16777216 bytes.
InvalidArgumentError: Detected unsupported operations when trying to compile graph f on XLA_TPU_JIT: AsString
InvalidArgumentError: (No registered 'ExtractImagePatches' OpKernel for XLA_TPU_JIT devices compatible with node)
InvalidArgumentError: Unsupported data type for TPU: double, caused by output IteratorGetNext:0
RuntimeError: Operation of type Placeholder (input_1) is not supported on the TPU. Execution will fail if
NotFoundError: could not find registered transfer manager for platform Host -- check target linkage
InternalError: XLA:TPU compile permanent error.
InvalidArgumentError: Compilation failure: Input 1 to node `strided_slice` must be a compile-time constant.
ValueError: Shape [None, 32, 32, 3] must have a fixed size for dimension 0 that is known at construction time.
ValueError: Dynamic input shapes are not supported with infeed queues
UnimplementedError: AllToAll does not support bounded dynamic shapes
InvalidArgumentError: {{function_node __wrapped__AddV2_device_}} Incompatible shapes: [2] vs. [3] [Op:AddV2] name:
ValueError: The global batch size 1000 must be divisible by the number of replicas 16.
""",
    errors.TpuSetupError: r"""
NotFoundError: TPUs not found in the cluster. No OpKernel was registered to support Op 'ConfigureDistributedTPU' used by
ValueError: Please provide a TPU Name to connect to.
UnknownError: Couldn't open iommu group /dev/vfio/0: Permission denied
UnknownError: libtpu.so: cannot open shared object file: No such file or directory
InvalidArgumentError: Unexpected PJRT_Client_Create_Args size: expected 56, got 48. Check installed software versions.
RuntimeError: TPU initialization failed: Invalid --2a886c8_slice_builder_worker_addresses specified.
""",
    errors.ArtifactError: r"""
InvalidArgumentError: Received a label value of 10 which is outside the valid range of [0, 10).
""",
    errors.DivergenceError: r"""
InvalidArgumentError: {{function_node __wrapped__CheckNumerics}} loss : Tensor had NaN values [Op:CheckNumerics] name:
""",
    errors.TpuUnhealthyError: r"""
UnavailableError: Graph execution error:\n\nSocket closed\nAdditional GRPC error information from remote target
UnavailableError: failed to connect to all addresses\nAdditional GRPC error information from remote target /job:worker
DeadlineExceededError: Deadline Exceeded
DeadlineExceededError: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0.
RuntimeError: Unable to initialize backend 'tpu': UNAVAILABLE: no device
RuntimeError: TPU initialization failed: Failed to get global TPU topology.
UnknownError: TPU initialization failed: open(/dev/accel3): Operation not permitted: Operation not permitted
InternalError: Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device
UnavailableError: Bad hardware status: 0x1
FailedPreconditionError: The TPU system has not been initialized.
UnavailableError: words never seen before
""",
    errors.TpuGoneError: r"""
AbortedError: This may be due to a preemption in a connected worker. Error: Session ef9fc537f782c0ae is not found.
AbortedError: The worker was preempted
UnavailableError: task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task 37 heartbeat timeout.
AbortedError: lame workers found: HeartbeatManager(/job:worker/replica:0/task:0/device:CPU:0)
""",
    errors.UnexplainedError: """
InternalError: words never seen before
UnknownError: words never seen before
""",
    errors.RefusedOperationError: """
InvalidArgumentError: words never seen before
UnimplementedError: words never seen before
""",
}
SAID = [
    (error, kind, message.replace(r"\n", "\n"))
    for error, lines in FIELD.items()
    for kind, _, message in (line.partition(": ") for line in lines.strip().splitlines())
]


@pytest.mark.parametrize(("error", "kind", "message"), SAID)
def test_messages_of_the_field(error: type[errors.PodlineError], kind: str, message: str) -> None:
    explained = explain(kind, message)
    assert type(explained) is error
    assert kind in str(explained)
    assert "\n" not in str(explained)


@pytest.mark.parametrize("kind", ["KeyError", "ValueError", "TypeError", "MemoryError"])
@pytest.mark.parametrize("message", ["words never seen before", "an unhealthy mesh was preempted"])
def test_a_bug_is_no_failure_of_the_tpu(kind: str, message: str) -> None:
    assert explain(kind, message) is None


def test_every_row_of_the_table_has_a_message_that_needs_it() -> None:
    needed = {
        next((row for row in KNOWN if re.search(row.pattern, message, re.IGNORECASE | re.DOTALL)), None)
        for _error, _kind, message in SAID
    }
    assert needed >= set(KNOWN)


def test_a_long_message_is_cut_and_still_understood() -> None:
    explained = explain("ResourceExhaustedError", "x" * 10_000 + " Exceeded hbm capacity by 6G")
    assert type(explained) is errors.SettingsError
    assert len(str(explained)) < 700
