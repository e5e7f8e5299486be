"""COCO's people: from annotated images to a pose network and its report.

    podline run coco_pose --root podline-root
    podline run coco_pose --source coco --root podline-root

Without a source, a sample of stick people is drawn. Convert → validate → train → evaluate → report, as in
:mod:`podline.flows.cifar_training`.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from podline.tasks.chain import described, from_archive_to_report
from podline.tasks.forms import run_name
from podline.tasks.leftover_tasks import close_tasks
from podline.tasks.parameters import CocoParameters
from podline.tasks.runs.nights import pause_if_hopeless


@flow(
    name="coco-training",
    flow_run_name=run_name(CocoParameters, described),
    # The body does it, and says what is wrong in one line.
    validate_parameters=False,
    persist_result=True,
    result_serializer="json",
    on_failure=[pause_if_hopeless],
    on_crashed=[close_tasks, pause_if_hopeless],
)
def coco_training(parameters: CocoParameters) -> dict[str, Any] | State[Any]:
    """From raw archive to report.

    Args:
        parameters: What to train, on which data, and where it goes.
    """
    return from_archive_to_report(CocoParameters, parameters)
