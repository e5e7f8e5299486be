"""The settings for TPUs, as models; :mod:`podline.settings.machine` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from podline.base.frozen import Frozen

_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]", "unix"})


class NodeSpec(Frozen):
    """The spec of a node to create."""

    accelerator_type: str = Field(
        min_length=1, description="for example v4-8; without a `tpu.spec`, no node is created or deleted"
    )
    runtime_version: str = Field(min_length=1, description="for example tpu-vm-tf-2.20.0-pjrt")
    spot: bool = Field(default=False, description="cheaper, and preempted when Google needs it")
    reserved: bool = Field(default=False, description="from a reservation of the project")
    queued: bool = Field(default=False, description="through Google's queue instead of at once or not at all")
    network: str = Field(default="", description="the project's default unless given")
    subnetwork: str = Field(default="", description="the network's default unless given")
    external_ip: bool = Field(default=True, description="without one, the subnetwork needs Private Google Access")
    service_account: str = Field(default="", description="the project's default Compute account unless given")
    startup_script: str = Field(
        default="", description="a file, `deployments/tpu-startup.sh`, that root runs at every start"
    )
    install: str = Field(default="", description="git+URL@REF, or a wheel beside tpu.lock: gs://…, https://…, a path")
    prefect_url: str = Field(default="", description="for the script: PREFECT_API_URL from the node's view")
    prefect_secret: str = Field(
        default="", description="for the script: a secret's name in Secret Manager; its lines are `PREFECT_…=value`"
    )


class ApiSettings(Frozen):
    """The Cloud TPU API, a project and a zone; times are in seconds.

    Credentials are Google's application default ones: a service account on the machine, the file that
    ``GOOGLE_APPLICATION_CREDENTIALS`` names, or ``gcloud auth application-default login``.
    """

    project: str = Field(min_length=1, description="the Google Cloud project")
    zone: str = Field(min_length=1, description="for example us-central2-b")
    endpoint: str = Field(default="tpu.googleapis.com", min_length=1, description="host, or host:port")
    insecure: bool = Field(default=False, description="no TLS, no credentials: for a stand-in on this machine")
    call_timeout: float = Field(default=30.0, gt=0, description="the time limit of a single call")
    operation_poll: float = Field(default=10.0, gt=0, description="the interval between checks of an operation")
    operation_timeout: float = Field(default=1800.0, gt=0, description="the limit of an operation")

    @model_validator(mode="after")
    def _insecure_is_local(self) -> ApiSettings:
        host = self.endpoint.rpartition(":")[0]
        if self.insecure and host not in _LOCAL:
            raise ValueError(f"insecure=true vs endpoint={self.endpoint!r}: only an endpoint on this machine may be")
        return self

    @property
    def parent(self) -> str:
        """The resource name of the nodes' parent."""
        return f"projects/{self.project}/locations/{self.zone}"


class MachineSettings(Frozen):
    """The TPU VM itself, for Podline running on it."""

    lock_file: str = Field(default="/tmp/libtpu_lockfile", min_length=1, description="libtpu's own")  # noqa: S108
    metadata_address: str = Field(default="metadata.google.internal", min_length=1, description="host or host:port")
    metadata_timeout: float = Field(default=2.0, gt=0, description="the time limit of its server's answers")


class Restart(Frozen):
    """Stopping and starting a node; times are in seconds."""

    attempts: int = Field(default=2, ge=0, description="the largest number of these repairs per stage")
    pause: float = Field(default=10.0, ge=0, description="the pause between stop and start")
    patience: float = Field(default=600.0, gt=0, description="the time limit for the node to recover afterwards")


class Recreate(Restart):
    """Deleting and creating a node."""

    pause: float = Field(default=60.0, ge=0, description="the pause between deletion and creation")
    patience: float = Field(default=1200.0, gt=0, description="the time limit for the node to recover afterwards")


class Limits(Frozen):
    """Delays and budgets of the gate and of the watch; times are in seconds.

    ``poll``, ``patience`` and ``symptom_age`` are TensorFlow's own numbers (``cloud_tpu_client``).
    """

    poll: float = Field(default=30.0, gt=0, description="the interval between checks of a node that is waited for")
    patience: float = Field(
        default=1200.0, gt=0, description="the time that a node has to recover before the first repair"
    )
    symptom_age: float = Field(default=90.0, ge=0, description="a younger symptom keeps a healthy node waiting")
    cool_down: float = Field(default=60.0, ge=0, description="the pause between two users of one machine's TPU")
    turn: float = Field(
        default=86_400.0, gt=0, description="the time that a flow run waits for others that use the TPU"
    )
    restart: Restart = Restart()
    recreate: Recreate = Recreate()
    preemptions: int = Field(default=5, ge=0, description="new nodes for preempted ones, apart from `recreate`")
    quota_release: float = Field(
        default=300.0, ge=0, description="the time for which a deleted node's quota may stay in use"
    )
    queue: float = Field(default=21_600.0, gt=0, description="the time limit of a request in Google's queue")
    stall: float = Field(
        default=120.0, gt=0, description="the time limit of training without progress on an unhealthy node"
    )
    notice_poll: float = Field(default=5.0, gt=0, description="the interval between checks of the metadata server")
    maintenance_lead: float = Field(
        default=300.0, ge=0, description="the time before a maintenance at which training ends"
    )
    worker: float = Field(default=900.0, gt=0, description="the time limit for the node's worker to start a run")


class TpuSettings(Frozen):
    """A TPU to train on.

    Podline on the TPU VM repairs nothing, since stopping the node would stop Podline. Use `podline tpu recover`, or a
    patrol, on another machine.
    """

    node: str = Field(
        pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=61, description="the node's name; models then use the gate"
    )
    api: ApiSettings
    spec: NodeSpec | None = None
    machine: MachineSettings | None = None
    # All users of the machine share this folder, which is emptied when the machine starts and the TPU has no user.
    folder: str = Field(default="/tmp", min_length=1, description="the folder of the lock file of local users")  # noqa: S108
    placement: Literal["here", "node"] = Field(
        default="here",
        description="`node`: a worker there runs the models of flows here; see docs/explanation/tpu.md#two-placements",
    )
    idle_stop: float = Field(default=60.0, ge=0, description="minutes until the patrol stops an unused node; 0: never")
    patrol: Literal["report", "repair"] = Field(
        default="report", description="`repair`: the patrol acts by its table; `report`: it only reports"
    )
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _not_there_and_here(self) -> TpuSettings:
        if self.placement == "node" and self.machine is not None:
            raise ValueError(
                "placement='node' vs a table [tpu.machine], which says that Podline runs on the TPU VM itself: drop one"
            )
        return self

    def budget(self, *, stoppable: bool = True) -> Limits:
        """Return the limits without impossible repairs: all on the TPU VM itself, new nodes without a spec.

        Args:
            stoppable: whether the node can be stopped and started.
        """
        never = {"attempts": 0}
        changes: dict[str, object] = {}
        if self.machine is not None or self.spec is None:
            changes |= {"recreate": self.limits.recreate.model_copy(update=never), "preemptions": 0}
        if self.machine is not None or not stoppable:
            changes |= {"restart": self.limits.restart.model_copy(update=never)}
        return self.limits.model_copy(update=changes)

    @property
    def turn_file(self) -> Path:
        """The lock file of the node's users on this machine."""
        return Path(self.folder) / f"podline-tpu-{self.node}"
