"""The files that set a Dask cluster up: their commands are ones that Dask has, and podline's image has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

DEPLOYMENTS = Path(__file__).resolve().parents[2] / "deployments"
COMMANDS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def containers() -> dict[str, dict[str, Any]]:
    services = yaml.safe_load((DEPLOYMENTS / "containers" / "dask-compose.yaml").read_text())["services"]
    spec = yaml.safe_load((DEPLOYMENTS / "dask-cluster.yaml").read_text())["spec"]
    found = {f"compose {name}": service for name, service in services.items()}
    for name in ("scheduler", "worker"):
        (container,) = spec[name]["spec"]["containers"]
        found[f"kubernetes {name}"] = {**container, "command": container["args"]}
    return found


@pytest.mark.parametrize("which", sorted(containers()))
def test_each_container_runs_a_command_of_dask(which: str) -> None:
    program, name, *options = containers()[which]["command"]
    assert (program, name) == ("dask", which.split()[1])
    COMMANDS[name].make_context(name, [str(option) for option in options])


def test_the_image_is_podlines_own_and_ports_are_those_of_the_service() -> None:
    services = yaml.safe_load((DEPLOYMENTS / "containers" / "dask-compose.yaml").read_text())["services"]
    assert {service["image"] for service in services.values()} == {"podline:cpu"}
    scheduler = yaml.safe_load((DEPLOYMENTS / "dask-cluster.yaml").read_text())["spec"]["scheduler"]
    ports = {port["name"] for port in scheduler["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in scheduler["service"]["ports"]} == ports
    assert "dask==" in (DEPLOYMENTS / "cpu.lock").read_text()


def test_workers_of_beam_start_from_the_release_that_is_locked() -> None:
    locked = next(
        line.split()[0].partition("==")[2]
        for line in (DEPLOYMENTS / "cpu.lock").read_text().splitlines()
        if line.startswith("apache-beam==")
    )
    assert f"beam_python3.11_sdk:{locked} " in (DEPLOYMENTS / "containers" / "Containerfile").read_text()
