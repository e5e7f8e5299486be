"""One stage on the TPU's own node, for a flow that runs elsewhere (the setting ``tpu.placement = "node"``).

The flow that waits for it starts it, holds the lease on the node and watches it; no person runs it. The node's worker,
from deployments/tpu-startup.sh, takes it up.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from podline import settings
from podline.errors import PodlineError, TpuSetupError
from podline.stages.table import stage_named
from podline.supervision.running import perform
from podline.tasks.node.node_run import failure
from podline.tasks.runs.bucket_credentials import bucket_credentials
from podline.tasks.runs.names import recipe_of
from podline.tasks.runs.progress_cards import deal_cards
from podline.tasks.runs.run_log import stage_listener

# The flow that waits has written the first attempt into the TPU log; budgets count from there.
_NOT_THE_FIRST = 2


@flow(name="stage-on-node")
def stage_on_node(stage: str, spec: dict[str, Any]) -> State[Any]:
    """Do a stage behind this machine's own gate: its lock, its turn, its cool-down, its notices.

    Its result lies in the store; the message of a failure is the error's class and text.

    Args:
        stage: Its name, like train.
        spec: What it is given, as JSON.
    """
    try:
        _perform(stage, spec)
    except PodlineError as error:
        return Failed(message=failure(error))
    return Completed(message=f"{stage} is done; what it made is in the store")


def _perform(stage: str, spec: dict[str, Any]) -> None:
    given = stage_named(stage).spec.model_validate(spec)
    machine = settings.load()
    if machine.tpu is None or machine.tpu.machine is None:
        raise TpuSetupError(
            "this worker's settings have no table [tpu.machine]; a worker of the pool tpu runs on the TPU VM, and "
            "deployments/tpu-startup.sh writes them"
        )
    deal_cards(recipe_of(given.folder), [stage])
    with bucket_credentials():
        perform(given, stage_listener(stage), machine, attempt=_NOT_THE_FIRST)
