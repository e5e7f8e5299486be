"""The flow of the nights, for a worker to load: with stages that are watched, and delays of seconds between tries."""

from __future__ import annotations

from night_stages import watched_stages

from podline import errors
from podline.flows.training import training
from podline.stages.table import STAGES

__all__ = ["training"]

STAGES.update(watched_stages())
errors.StoreUnavailableError.retry_delays = (1.0, 2.0)
errors.ChildKilledError.retry_delays = (1.0, 2.0)
