"""CIFAR-10, CIFAR-100, MNIST and the drawn sample: from raw archive to report.

    podline run sample --root podline-root

Convert → validate → train → evaluate → report. What an earlier run did and what is still whole is found, verified and
used again; what broke off goes on where it was.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from podline.tasks.chain import described, from_archive_to_report
from podline.tasks.forms import run_name
from podline.tasks.leftover_tasks import close_tasks
from podline.tasks.parameters import CifarParameters
from podline.tasks.runs.nights import pause_if_hopeless


@flow(
    name="cifar-training",
    flow_run_name=run_name(CifarParameters, described),
    # The body does it, and says what is wrong in one line.
    validate_parameters=False,
    persist_result=True,
    result_serializer="json",
    on_failure=[pause_if_hopeless],
    on_crashed=[close_tasks, pause_if_hopeless],
)
def cifar_training(parameters: CifarParameters) -> dict[str, Any] | State[Any]:
    """From raw archive to report.

    Args:
        parameters: What to train, on which data, and where it goes.
    """
    return from_archive_to_report(CifarParameters, parameters)
