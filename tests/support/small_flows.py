"""A flow of one small stage, for runs embedded in a process that a test starts and kills."""

from __future__ import annotations

from typing import Any

from prefect import flow
from pydantic import BaseModel
from small_stages import ACT, ActSpec

from podline.tasks.stages import StageTask

act = StageTask(ACT)


@flow(name="acting")
def acting(parameters: BaseModel) -> dict[str, Any]:
    """One act."""
    spec = ActSpec.model_validate(parameters.model_dump())
    return act(spec).model_dump(mode="json")
