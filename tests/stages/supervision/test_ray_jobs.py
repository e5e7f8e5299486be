"""Ray as a scheduler: what its Jobs API does on a real one of two nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from free_ports import free_ports
from ray_cluster import ray_cluster
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.errors import SettingsError, WorkerLostError
from podline.base.progress import Event
from podline.recipes.durations import Duration
from podline.settings.machine import Settings
from podline.stages.specs import TrainSpec
from podline.stages.supervision import ray_hosts
from podline.stages.supervision.job import run_as_job
from podline.stages.supervision.ray_jobs import RayJobs

ROOT = "/a root"


def test_a_machine_without_ray_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SettingsError, match=r"launch=ray:http://head:8265 needs Ray on this machine .*pip install 'ray\[default\]"
    ):
        RayJobs("http://head:8265").find("run", ROOT)


def test_a_head_node_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray", reason="needs Ray")
    address = f"http://localhost:{free_ports(1)[0]}"
    with pytest.raises(
        WorkerLostError, match=rf"launch=ray:{address}: got .*Failed to connect.*, expected Ray's Jobs API"
    ):
        RayJobs(f"{address}/").find("run", ROOT)


def test_a_cluster_that_does_not_answer_is_one_line() -> None:
    ray = SimpleNamespace(init=Mock(side_effect=[ConnectionError("no Ray"), ValueError("Invalid address")]))
    with pytest.raises(WorkerLostError, match="ray:auto: got 'no Ray', expected a running Ray cluster"):
        ray_hosts._connect(ray, "auto")
    with pytest.raises(SettingsError, match="ray:auto: got 'Invalid address', expected HEAD:6379 or auto"):
        ray_hosts._connect(ray, "auto")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("in_children")
def test_a_node_that_is_lost_is_one_cause(tmp_path: Path) -> None:
    publish_dataset(root := tmp_path / "root")
    spec = TrainSpec(root=str(root), recipe=small_recipe(duration=Duration(steps=1_000_000)), fingerprint=FINGERPRINT)
    with ray_cluster(dashboard=True) as nodes:
        [node] = nodes.worker_nodes

        def listener(event: Event) -> None:
            if event["event"] == "progress" and nodes.worker_nodes:
                nodes.remove_node(node, allow_graceful=False)

        machine = Settings(launch=f"ray:http://{nodes.webui_url}", hosts="2", cluster_port=free_ports(1)[0])
        with pytest.raises(
            WorkerLostError, match=r"^worker [01] \([\d.]+:\d+\) is lost .*; start again with the remaining nodes"
        ):
            run_as_job(spec, listener, machine, lambda: False)
