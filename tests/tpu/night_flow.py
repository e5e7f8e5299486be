"""The flows for processes of their own, with the training left out."""

from __future__ import annotations

from small_flow_stages import STEPPING_STAGES

from podline.flows.stage_on_node import stage_on_node
from podline.flows.training import training
from podline.stages.table import STAGES

STAGES.update(STEPPING_STAGES)

__all__ = ["stage_on_node", "training"]
