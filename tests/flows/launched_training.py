"""The flow up to its training, for processes of its own."""

from __future__ import annotations

from typing import Any

from prefect import flow

from podline.tasks.failures import explained
from podline.tasks.night import opened
from podline.tasks.sources import conversion
from podline.tasks.stages import convert, train


@flow(name="training", validate_parameters=False)
@explained
def training(parameters: Any) -> None:
    """Convert and train."""
    with opened(parameters) as night:
        data = convert(conversion(night.form, night.store, night.machine), night)
        train(night.training(data.fingerprint), night)
