"""One stage on the TPU's own node, for a flow that runs elsewhere (the setting ``tpu.placement = "node"``).

    prefect worker start --pool tpu --work-queue NODE

No person runs this: the flow that waits for it holds the lease on the TPU and watches the node.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from podline.tasks.node.node_stage import perform_here


@flow(name="stage-on-node")
def stage_on_node(stage: str, spec: dict[str, Any]) -> Any:
    """One stage on the TPU's own node.

    Args:
        stage: Its name, like train.
        spec: What it is given, as JSON.
    """
    return perform_here(stage, spec)
