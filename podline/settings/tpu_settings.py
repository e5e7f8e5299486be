"""The settings for TPUs, as pydantic models; :mod:`podline.settings.machine` reads the values."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from podline.base.frozen import Frozen

_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]", "unix"})


class NodeSpec(Frozen):
    """The spec of a node to create."""

    accelerator_type: str = Field(
        min_length=1, description="the TPU type, such as v4-8; without a `tpu.spec`, no node is created or deleted"
    )
    runtime_version: str = Field(min_length=1, description="the TPU software version, such as tpu-vm-tf-2.20.0-pjrt")
    spot: bool = Field(default=False, description="use a spot TPU, which is cheaper and can be preempted")
    reserved: bool = Field(default=False, description="use the project's reservation")
    queued: bool = Field(
        default=False, description="request the node through Google's queue, instead of failing if none is free"
    )
    network: str = Field(default="", description="the network; empty: the project's default")
    subnetwork: str = Field(default="", description="the subnetwork; empty: the network's default")
    external_ip: bool = Field(
        default=True, description="give the node an external IP; without, the subnetwork needs Private Google Access"
    )
    service_account: str = Field(
        default="", description="the service account; empty: the project's default Compute account"
    )
    startup_script: str = Field(
        default="", description="a file such as `deployments/tpu-startup.sh`, which root runs at every start"
    )
    install: str = Field(
        default="", description="what to install: git+URL@REF, or a wheel next to tpu.lock: gs://…, https://…, a path"
    )
    prefect_url: str = Field(
        default="", description="for the script: the server's PREFECT_API_URL as seen from the node"
    )
    prefect_secret: str = Field(
        default="", description="for the script: name of a secret in Secret Manager, with lines `PREFECT_…=value`"
    )


class ApiSettings(Frozen):
    """The Cloud TPU API, a project and a zone; times are in seconds.

    The API uses Google's application default credentials: a service account on the machine, the file in
    ``GOOGLE_APPLICATION_CREDENTIALS``, or ``gcloud auth application-default login``.
    """

    project: str = Field(min_length=1, description="the Google Cloud project")
    zone: str = Field(min_length=1, description="the zone, such as us-central2-b")
    endpoint: str = Field(default="tpu.googleapis.com", min_length=1, description="the API's host, or host:port")
    insecure: bool = Field(
        default=False, description="use no TLS and no credentials; only for a fake API on this machine, for tests"
    )
    call_timeout: float = Field(default=30.0, gt=0, description="the time limit of a single call")
    operation_poll: float = Field(default=10.0, gt=0, description="the interval between checks of an operation")
    operation_timeout: float = Field(default=1800.0, gt=0, description="the time limit of an operation")

    @model_validator(mode="after")
    def _insecure_is_local(self) -> ApiSettings:
        host = self.endpoint.rpartition(":")[0]
        if self.insecure and host not in _LOCAL:
            given = f"insecure=true with endpoint={self.endpoint!r}"
            raise ValueError(f"{given}, expected an endpoint on this machine; set insecure=false")
        return self

    @property
    def parent(self) -> str:
        """The parent of nodes in resource names: ``projects/PROJECT/locations/ZONE``."""
        return f"projects/{self.project}/locations/{self.zone}"


class MachineSettings(Frozen):
    """Settings for Podline that runs on the TPU VM itself."""

    lock_file: str = Field(default="/tmp/libtpu_lockfile", min_length=1, description="libtpu's lock file")  # noqa: S108
    metadata_address: str = Field(
        default="metadata.google.internal", min_length=1, description="the metadata server's host or host:port"
    )
    metadata_timeout: float = Field(default=2.0, gt=0, description="the time limit for answers of the metadata server")


class Restart(Frozen):
    """The repair that stops and starts a node; times are in seconds."""

    attempts: int = Field(default=2, ge=0, description="the largest number of these repairs per stage")
    pause: float = Field(default=10.0, ge=0, description="the pause between stop and start")
    patience: float = Field(default=600.0, gt=0, description="the time limit for the node to recover afterwards")


class Recreate(Restart):
    """The repair that deletes a node and creates a new one."""

    pause: float = Field(default=60.0, ge=0, description="the pause between deletion and creation")
    patience: float = Field(default=1200.0, gt=0, description="the time limit for the node to recover afterwards")


class Limits(Frozen):
    """Delays and budgets of the gate and of the watch; times are in seconds.

    The defaults of ``poll``, ``patience`` and ``symptom_age`` are those of TensorFlow (``cloud_tpu_client``).
    """

    poll: float = Field(default=30.0, gt=0, description="the interval between checks while waiting for a node")
    patience: float = Field(
        default=1200.0, gt=0, description="how long a node may take to recover by itself before the first repair"
    )
    symptom_age: float = Field(
        default=90.0, ge=0, description="wait before using a healthy node until its last symptom is this old"
    )
    cool_down: float = Field(default=60.0, ge=0, description="the pause between two users of one machine's TPU")
    turn: float = Field(
        default=86_400.0, gt=0, description="how long a flow run waits for other flow runs that use the TPU"
    )
    restart: Restart = Restart()
    recreate: Recreate = Recreate()
    preemptions: int = Field(
        default=5, ge=0, description="the largest number of new nodes for preempted nodes, in addition to `recreate`"
    )
    quota_release: float = Field(
        default=300.0, ge=0, description="how long the quota of a deleted node may stay in use"
    )
    queue: float = Field(default=21_600.0, gt=0, description="the time limit of a request in Google's queue")
    stall: float = Field(
        default=120.0, gt=0, description="the time limit of training without progress on an unhealthy node"
    )
    notice_poll: float = Field(default=5.0, gt=0, description="the interval between checks of the metadata server")
    maintenance_lead: float = Field(
        default=300.0, ge=0, description="how long before a maintenance event a training ends"
    )
    worker: float = Field(default=900.0, gt=0, description="the time limit for the node's worker to start a run")


class TpuSettings(Frozen):
    """A TPU to train on.

    Podline on the TPU VM itself repairs nothing, because stopping the node would stop Podline. Use `podline tpu
    recover`, or the patrol, on another machine.
    """

    node: str = Field(
        pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$",
        max_length=61,
        description="the node's name; with a name, stages with models wait at the gate",
    )
    api: ApiSettings
    spec: NodeSpec | None = None
    machine: MachineSettings | None = None
    # All users of the machine share this folder. It is emptied when the machine starts, when no process uses the TPU.
    folder: str = Field(default="/tmp", min_length=1, description="the folder of the lock file of local users")  # noqa: S108
    placement: Literal["here", "node"] = Field(
        default="here",
        description="`node`: a worker on the TPU VM runs the models of flows; "
        "see docs/explanation/tpu.md#two-placements",
    )
    idle_stop: float = Field(
        default=60.0, ge=0, description="after this many minutes the patrol stops an unused node; 0: never"
    )
    patrol: Literal["report", "repair"] = Field(
        default="report", description="`repair`: the patrol acts by its rules; `report`: it only reports"
    )
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _not_there_and_here(self) -> TpuSettings:
        if self.placement == "node" and self.machine is not None:
            raise ValueError(
                "got placement='node' and a table [tpu.machine], which means that Podline runs on the TPU VM itself; "
                "remove one of the two"
            )
        return self

    def budget(self, *, stoppable: bool = True) -> Limits:
        """Return the limits with 0 for impossible repairs: all repairs on the TPU VM, new nodes without a ``spec``.

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
        """The lock file of the processes that use the node from this machine."""
        return Path(self.folder) / f"podline-tpu-{self.node}"
