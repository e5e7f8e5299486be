"""The flow for processes of its own, with its evaluation left out."""

from __future__ import annotations

from small_flow_stages import FLOW_STAGES

from podline.flows.training import training
from podline.stages.table import STAGES

STAGES.update({name: FLOW_STAGES[name] for name in ("evaluate", "report")})

__all__ = ["training"]
