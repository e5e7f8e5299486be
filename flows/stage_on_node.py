"""A single stage on the TPU's own node, for a flow on another machine (the setting ``tpu.placement = "node"``).

The waiting flow starts it, holds the node's lease and watches the stage; do not start it by hand. It runs on the
node's worker, from deployments/tpu-startup.sh.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from podline.base.errors import PodlineError, TpuSetupError
from podline.settings import machine as settings
from podline.stages.supervision.running import perform
from podline.stages.table import stage_named
from podline.tasks.credentials import bucket_credentials
from podline.tasks.node import failure
from podline.tasks.server import recipe_of
from podline.tasks.shown import open_card, stage_listener

# The waiting flow has written the first attempt to the TPU log; time limits count from there.
_NOT_THE_FIRST = 2


@flow(name="stage-on-node")
def stage_on_node(stage: str, spec: dict[str, Any]) -> State[Any]:
    """Run a stage behind this machine's own gate, with its lock, queue, cool-down and notices.

    The result is in the store; a failure's message has the error's class and text.

    Args:
        stage: The stage's name, for example train.
        spec: The stage's settings, as JSON.
    """
    try:
        _perform(stage, spec)
    except PodlineError as error:
        return Failed(message=failure(error))
    return Completed(message=f"{stage} is done; its result is in the store")


def _perform(stage: str, spec: dict[str, Any]) -> None:
    given = stage_named(stage).spec.model_validate(spec)
    machine = settings.load()
    if machine.tpu is None or machine.tpu.machine is None:
        raise TpuSetupError(
            "this worker's settings have no table [tpu.machine]; workers of the pool tpu run on a TPU VM, where "
            "deployments/tpu-startup.sh writes the settings"
        )
    open_card(recipe_of(given.folder), [stage])
    with bucket_credentials():
        perform(given, stage_listener(stage), machine, attempt=_NOT_THE_FIRST)
