"""The tags by which Podline's deployments and runs are told from others on the same Prefect server."""

from __future__ import annotations

from datetime import timedelta

TAG = "podline"
"""Deployments whose runs a person or a schedule starts: a crashed run begins again once, and failures are notified."""
TPU_TAG = "podline-tpu"
"""Deployments for TPUs, which are made only where the settings name one."""
OUR_TAGS = (TAG, TPU_TAG)
SILENCE = timedelta(seconds=130)
"""A run of ours without a heartbeat for so long is gone: it has missed four; see ``settings.HEARTBEAT``."""
