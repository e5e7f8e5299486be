"""The flow for processes of its own: with the training left out, no time to wait for a retry, a lease of a minute."""

from __future__ import annotations

import sys

from small_flow_stages import STEPPING_STAGES

from podline import errors
from podline.flows.training import training
from podline.stages.table import STAGES
from podline.tasks.node import tpu_lease
from podline.tasks.parameters import TrainingForm

STAGES.update(STEPPING_STAGES)
tpu_lease.LEASE_SECONDS = 60.0  # the shortest that a Prefect server gives
tpu_lease._RENEWALS = 60
tpu_lease._ASK_SECONDS = 0.5
errors.TpuInUseError.retry_delays = (0.1, 0.1)

if __name__ == "__main__":
    training(TrainingForm.model_validate_json(sys.argv[1]))
