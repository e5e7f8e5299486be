"""Placement *node*, on the node's side: runs one stage for a flow elsewhere."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from podline import settings
from podline.errors import PodlineError, TpuSetupError
from podline.progress import Event
from podline.settings import Settings
from podline.stages.table import stage_named
from podline.supervision.running import perform
from podline.tasks.node import tpu_use
from podline.tasks.node.node_run import failure
from podline.tasks.node.node_signs import telling
from podline.tasks.runs.artifact_keys import recipe_of
from podline.tasks.runs.bucket_credentials import bucket_credentials
from podline.tasks.runs.progress_cards import deal_cards
from podline.tasks.runs.run_log import stage_listener

# The first attempt was told by the flow that waits: budgets count from there.
_NOT_THE_FIRST = 2


def perform_here(stage: str, spec: dict[str, Any]) -> State[Any]:
    """Does a stage behind this machine's own gate: its lock, its reservation, its cool-down, its notices.

    The lease is held by the flow that waits for this.

    Returns:
        The flow run's last state; a failure's message is the error's class and text. Of what the stage answers it
        holds nothing: that is in the store.
    """
    try:
        row = stage_named(stage)
        machine = _of_the_node(settings.load())
        given = row.spec.model_validate(spec)
        deal_cards(recipe_of(given.folder), [stage])
        to_run = stage_listener(stage)
        with bucket_credentials(), telling(UUID(flow_run.id)) as tell:

            def hear(event: Event) -> None:
                tell(event)
                to_run(event)

            perform(given, hear, machine, attempt=_NOT_THE_FIRST, clock=tpu_use.CLOCK)
    except PodlineError as error:
        return Failed(message=failure(error))
    return Completed(message=f"{stage} is done; what it made is in the store")


def _of_the_node(machine: Settings) -> Settings:
    """The settings, if they are those of a TPU VM.

    Raises:
        TpuSetupError: they are not, so nobody would look at the lock, or this node would stop itself.
    """
    if machine.tpu is None or machine.tpu.machine is None:
        raise TpuSetupError(
            "this worker's settings have no table [tpu.machine]; a worker of the pool tpu runs on the TPU VM, and "
            "deployments/tpu-startup.sh writes them"
        )
    return machine
