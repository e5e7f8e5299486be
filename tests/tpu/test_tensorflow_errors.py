"""What TensorFlow says, and what is made of it: messages as they stand in the field's reports."""

from __future__ import annotations

import re

import pytest

from podline import errors
from podline.tpu.tensorflow_errors import KNOWN, explain

IN_USE = "ABORTED: The TPU is already in use by process with pid 2239507. Not attempting to load libtpu.so"

FIELD: list[tuple[str, str, type[errors.PodlineError]]] = [
    # In use.
    ("AbortedError", IN_USE, errors.TpuInUseError),
    ("RuntimeError", f"Unable to initialize backend 'tpu': {IN_USE}", errors.TpuInUseError),
    (
        "AbortedError",
        (
            "libtpu.so already in use by another process probably  owned by another user. "
            'Run "$ sudo lsof -w /dev/accel0" to figure out which process is using the TPU.'
        ),
        errors.TpuInUseError,
    ),
    ("UnknownError", "TPU initialization failed: open(/dev/vfio/0): Device or resource busy", errors.TpuInUseError),
    # Out of memory.
    (
        "ResourceExhaustedError",
        (
            "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.\n"
            "Exceeded hbm capacity by 6.47G."
        ),
        errors.SettingsError,
    ),
    (
        "ResourceExhaustedError",
        "Attempting to reserve 12.12M at the bottom of memory. That was not possible. There are 9.25M free",
        errors.SettingsError,
    ),
    (
        "ResourceExhaustedError",
        (
            "{{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0/device:CPU:0}} OOM when allocating "
            "tensor with shape[1048576,1048576] and type float on /job:localhost by allocator mklcpu [Op:Fill] name: "
        ),
        errors.SettingsError,
    ),
    ("ResourceExhaustedError", "OOM when allocating temporary tensor with shape[64,128]", errors.SettingsError),
    ("ResourceExhaustedError", "Out of memory while trying to allocate 16777216 bytes.", errors.SettingsError),
    ("ResourceExhaustedError", "Out of memory allocating 16777216 bytes.", errors.SettingsError),
    # What a TPU cannot do.
    (
        "InvalidArgumentError",
        (
            "Detected unsupported operations when trying to compile graph __inference_f_17[_XlaMustCompile=true] on "
            "XLA_TPU_JIT: AsString (No registered 'AsString' OpKernel for XLA_TPU_JIT devices compatible with node)"
        ),
        errors.SettingsError,
    ),
    (
        "InvalidArgumentError",
        "Unsupported data type for TPU: double, caused by output IteratorGetNext:0",
        errors.SettingsError,
    ),
    (
        "InvalidArgumentError",
        "Compilation failure: Input 1 to node `strided_slice` with op StridedSlice must be a compile-time constant.",
        errors.SettingsError,
    ),
    *(
        (
            kind,
            "Operation of type Placeholder (input_1) is not supported on the TPU. Execution will fail if",
            errors.SettingsError,
        )
        for kind in ("RuntimeError", "ValueError", "NotImplementedError")
    ),
    (
        "NotImplementedError",
        "Non-resource Variables are not supported inside TPU computations (operator name: ReadVariableOp)",
        errors.SettingsError,
    ),
    (
        "ValueError",
        "Shape [None, 32, 32, 3] must have a fixed size for dimension 0 that is known at construction time.",
        errors.SettingsError,
    ),
    ("ValueError", "Dynamic input shapes are not supported with infeed queues", errors.SettingsError),
    ("UnimplementedError", "AllToAll does not support bounded dynamic shapes", errors.SettingsError),
    ("InvalidArgumentError", "inputs with dynamic shapes are unsupported", errors.SettingsError),
    (
        "NotFoundError",
        "could not find registered transfer manager for platform Host -- check target linkage",
        errors.SettingsError,
    ),
    # A machine that is not set up.
    (
        "NotFoundError",
        (
            "TPUs not found in the cluster. Failed in initialization: No OpKernel was registered to support Op "
            "'ConfigureDistributedTPU' used by {{node ConfigureDistributedTPU}} with these attrs"
        ),
        errors.TpuSetupError,
    ),
    ("ValueError", "Please provide a TPU Name to connect to.", errors.TpuSetupError),
    ("UnknownError", "Couldn't open iommu group /dev/vfio/0: Permission denied", errors.TpuSetupError),
    (
        "UnknownError",
        "libtpu.so: cannot open shared object file: No such file or directory",
        errors.TpuSetupError,
    ),
    (
        "InvalidArgumentError",
        "Unexpected PJRT_Client_Create_Args size: expected 56, got 48. Check installed software versions.",
        errors.TpuSetupError,
    ),
    # Data and numbers.
    (
        "InvalidArgumentError",
        "Received a label value of 10 which is outside the valid range of [0, 10).",
        errors.ArtifactError,
    ),
    (
        "InvalidArgumentError",
        "{{function_node __wrapped__CheckNumerics}} loss : Tensor had NaN values [Op:CheckNumerics] name: ",
        errors.DivergenceError,
    ),
    (
        "InvalidArgumentError",
        "{{function_node __wrapped__AddV2_device_}} Incompatible shapes: [2] vs. [3] [Op:AddV2] name: ",
        errors.SettingsError,
    ),
    ("ValueError", "The global batch size 1000 must be divisible by the number of replicas 16.", errors.SettingsError),
    # What passes.
    ("UnavailableError", "Socket closed", errors.TpuUnhealthyError),
    (
        "UnavailableError",
        'RPC failed with status = "Unavailable: Socket closed" and grpc_error_string = "{"created":"@1609120565.2"}"',
        errors.TpuUnhealthyError,
    ),
    (
        "UnavailableError",
        "failed to connect to all addresses\nAdditional GRPC error information from remote target /job:worker",
        errors.TpuUnhealthyError,
    ),
    ("UnavailableError", "failed to connect to all subchannels", errors.TpuUnhealthyError),
    ("UnavailableError", "Connection reset by peer", errors.TpuUnhealthyError),
    ("DeadlineExceededError", "Deadline Exceeded", errors.TpuUnhealthyError),
    ("RuntimeError", "Unable to initialize backend 'tpu': UNAVAILABLE: no device", errors.TpuUnhealthyError),
    (
        "RuntimeError",
        "Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: Failed to get global TPU topology.",
        errors.TpuUnhealthyError,
    ),
    (
        "InternalError",
        (
            "Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device "
            "check-failure. Node 0 halted unexpectedly at tag:pc TensorCoreSequencer:1:0x175"
        ),
        errors.TpuUnhealthyError,
    ),
    ("UnavailableError", "Bad hardware status: 0x1", errors.TpuUnhealthyError),
    ("FailedPreconditionError", "The TPU system has not been initialized.", errors.TpuUnhealthyError),
    ("AbortedError", "Session 5d4a1b0c2f is not found.", errors.TpuGoneError),
    ("AbortedError", "The worker was preempted", errors.TpuGoneError),
    # From threads of the field, named here.
    (  # marin-community/marin#2618
        "FailedPreconditionError",
        (
            "Failed to initialize TPU system with error: FAILED_PRECONDITION: open(/dev/vfio/0): Device or resource "
            "busy: Device or resource busy; Couldn't open iommu group /dev/vfio/0"
        ),
        errors.TpuInUseError,
    ),
    (  # AI-Hypercomputer/tpu-recipes#151
        "ResourceExhaustedError",
        (
            "Error loading program 'jit__multi_slice': Attempting to reserve 6.14G at the bottom of memory. That was "
            "not possible."
        ),
        errors.SettingsError,
    ),
    (  # pytorch/xla#1735
        "ResourceExhaustedError",
        (
            "From /job:tpu_worker/replica:0/task:0:\nAttempting to reserve 3.95G at the bottom of memory. That was not "
            "possible. There are 1.92G free, 0B reserved, and 1.92G reservable.; \nHBM capacity 8.00G:"
        ),
        errors.SettingsError,
    ),
    (  # leondgarse/keras_cv_attention_models#8
        "InvalidArgumentError",
        (
            "9 root error(s) found.\n  (0) Invalid argument: {{function_node __inference_train_function}} Compilation "
            "failure: Detected unsupported operations when trying to compile graph cluster_train[] on XLA_TPU_JIT: "
            "ExtractImagePatches (No registered 'ExtractImagePatches' OpKernel for XLA_TPU_JIT devices"
        ),
        errors.SettingsError,
    ),
    ("InternalError", "XLA:TPU compile permanent error.", errors.SettingsError),  # erfanzar/EasyDeL#166, its beginning
    (  # google-deepmind/alphafold3#656
        "RuntimeError",
        (
            "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared "
            "object file: No such file or directory"
        ),
        errors.TpuSetupError,
    ),
    (  # Lightning-AI/pytorch-lightning#20244
        "RuntimeError",
        (
            "Bad StatusOr access: UNKNOWN: TPU initialization failed: Invalid --2a886c8_slice_builder_worker_addresses "
            "specified. Expected 4 worker addresses, got 1."
        ),
        errors.TpuSetupError,
    ),
    (  # marin-community/levanter#1127; there a process that has just ended is the cause, and it passes
        "UnknownError",
        (
            "TPU initialization failed: open(/dev/accel3): Operation not permitted: Operation not permitted; Couldn't "
            "open device: /dev/accel3; [/dev/accel3]"
        ),
        errors.TpuUnhealthyError,
    ),
    (  # tensorflow/tensorflow#57760
        "UnavailableError",
        (
            "Graph execution error:\n\nSocket closed\nAdditional GRPC error information from remote target "
            "/job:ps/replica:0/task:0/device:CPU:0:"
        ),
        errors.TpuUnhealthyError,
    ),
    (  # AI-Hypercomputer/gpu-recipes#2
        "DeadlineExceededError",
        (
            "Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task "
            "triggered the barrier too early or too slowly."
        ),
        errors.TpuUnhealthyError,
    ),
    (  # EleutherAI/architecture-objective#26
        "UnavailableError",
        (
            "/job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task "
            "/job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task has failed, got "
            "preempted, or crashed unexpectedly."
        ),
        errors.TpuGoneError,
    ),
    (  # tensorflow/tensorflow#38190
        "AbortedError",
        (
            "This may be due to a preemption in a connected worker or parameter server. Error: Session "
            "ef9fc537f782c0ae is not found."
        ),
        errors.TpuGoneError,
    ),
    (  # megagonlabs/t5-japanese#1
        "AbortedError",
        "lame workers found: HeartbeatManager(/job:worker/replica:0/task:0/device:CPU:0)",
        errors.TpuGoneError,
    ),
    # By their class alone.
    ("UnavailableError", "words never seen before", errors.TpuUnhealthyError),
    ("InternalError", "words never seen before", errors.UnexplainedError),
    ("UnknownError", "words never seen before", errors.UnexplainedError),
    ("InvalidArgumentError", "words never seen before", errors.PermanentError),
    ("UnimplementedError", "words never seen before", errors.PermanentError),
]


@pytest.mark.parametrize(("kind", "message", "error"), FIELD)
def test_messages_of_the_field(kind: str, message: str, error: type[errors.PodlineError]) -> None:
    explained = explain(kind, message)
    assert type(explained) is error
    assert kind in str(explained)
    assert "\n" not in str(explained)


@pytest.mark.parametrize("kind", ["KeyError", "ValueError", "TypeError", "MemoryError"])
@pytest.mark.parametrize("message", ["words never seen before", "an unhealthy mesh was preempted"])
def test_a_bug_is_no_failure_of_the_tpu(kind: str, message: str) -> None:
    assert explain(kind, message) is None


def test_an_unknown_failure_is_tried_once_more_and_no_more() -> None:
    explained = explain("InternalError", "words never seen before")
    assert isinstance(explained, errors.TransientError)
    assert isinstance(explained, errors.UnexplainedError)
    assert len(explained.retry_delays) == 1


def test_every_row_of_the_table_has_a_message_that_needs_it() -> None:
    needed = {
        next((row for row in KNOWN if re.search(row.pattern, message, re.IGNORECASE | re.DOTALL)), None)
        for _kind, message, _error in FIELD
    }
    assert needed >= set(KNOWN)


def test_a_long_message_is_cut_and_still_understood() -> None:
    explained = explain("ResourceExhaustedError", "x" * 10_000 + " Exceeded hbm capacity by 6G")
    assert type(explained) is errors.SettingsError
    assert len(str(explained)) < 700
