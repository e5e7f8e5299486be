"""A node of the stand-in with all that it takes to use it, in one value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import Script
from turned_clock import TurnedClock

from podline.settings.tpu_settings import ApiSettings, NodeSpec, TpuSettings
from podline.tpu.client import CloudTpu
from podline.tpu.gate import admitted
from podline.tpu.tpu_log import TpuLog

NOON = 1_800_000_000.0
SPEC = NodeSpec(accelerator_type="v4-8", runtime_version="tpu-vm-tf-2.20.0-pjrt")


def api_settings(address: str, **changes: Any) -> ApiSettings:
    return ApiSettings(project="test-project", zone="us-central2-b", endpoint=address, insecure=True, **changes)


def set_environment(patch: pytest.MonkeyPatch, address: str, **more: str) -> None:
    """Have this process's settings name the node of a stand-in; ``more`` are settings below ``tpu``."""
    values = {"NODE": NODE, "API_PROJECT": "test-project", "API_ZONE": "us-central2-b", "API_ENDPOINT": address}
    values |= {"API_INSECURE": "true", "SPEC_ACCELERATOR_TYPE": "v4-8", "SPEC_RUNTIME_VERSION": "tpu-vm"}
    for name, value in {**values, "LIMITS_PATIENCE": "60", **more}.items():
        patch.setenv(f"PODLINE_TPU_{name}", value)


@dataclass
class Bench:
    """The stand-in and a client for it, on one clock."""

    clock: TurnedClock
    cloud: Cloud
    api: CloudTpu
    settings: TpuSettings
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tpu_log = TpuLog(self.lines.append)

    def admitted(self) -> contextlib.AbstractContextManager[None]:
        return admitted(self.settings, self.api, self.clock, self.tpu_log)

    def events(self) -> list[str]:
        return [str(entry.event) for entry in self.tpu_log.entries]


@contextlib.contextmanager
def bench(
    folder: Path, script: Script | None = None, clock: TurnedClock | None = None, **changes: Any
) -> Iterator[Bench]:
    """A stand-in that serves; ``changes`` are settings."""
    clock = clock or TurnedClock(NOON)
    cloud = Cloud(clock, script or Script())
    with serving(cloud) as address:
        api = api_settings(address)
        given: dict[str, Any] = {"node": NODE, "api": api, "spec": SPEC, "folder": str(folder), **changes}
        with CloudTpu(api, clock) as client:
            yield Bench(clock, cloud, client, TpuSettings(**given))
