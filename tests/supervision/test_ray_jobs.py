"""Ray as a scheduler: what its Jobs API does on a real one of two nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from free_ports import free_ports
from prefect_servers import wait_until
from ray_cluster import ray_cluster
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.errors import SettingsError, WorkerLostError
from podline.progress import Event
from podline.recipes.durations import Duration
from podline.settings import Settings
from podline.stages.specs import TrainSpec
from podline.supervision.job import run_as_job
from podline.supervision.ray_jobs import RayJobs
from podline.supervision.schedulers import Job

ROOT = "/a root"


def test_a_machine_without_ray_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SettingsError, match=r"launch=ray:http://head:8265: got .*, expected Ray; install podline\[ray\]"
    ):
        RayJobs("http://head:8265").find("run", ROOT)


def test_a_head_node_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray", reason="needs Ray")
    address = f"http://localhost:{free_ports(1)[0]}"
    with pytest.raises(
        WorkerLostError, match=rf"launch=ray:{address}: got .*Failed to connect.*, expected Ray's Jobs API"
    ):
        RayJobs(f"{address}/").find("run", ROOT)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_is_submitted_found_and_cancelled(tmp_path: Path) -> None:
    said = tmp_path / "said it"
    command = ["sh", "-c", f"echo $0 $PODLINE_HOSTS >>'{said}'; exec sleep $1", "{job}"]
    with ray_cluster(dashboard=True) as nodes:
        jobs = RayJobs(f"http://{nodes.webui_url}")

        def newest() -> Job:
            job = jobs.find("t-1", ROOT)
            assert job is not None
            return job

        assert jobs.find("t-1", ROOT) is None
        first = jobs.submit("t-1", ROOT, [*command, "0"], Settings(hosts="2"), "")
        wait_until(lambda: newest().ended)
        assert newest()[:2] == (first, "COMPLETED")
        second = jobs.submit("t-1", ROOT, [*command, "600"], Settings(hosts="2..4"), "")
        wait_until(lambda: newest().state == "RUNNING")
        assert (newest().number, newest().goes_on) == (second, True)
        assert jobs.find("t-1", "/another root") is None
        wait_until(lambda: said.read_text() == f"{first} 2\n{second} 2..4\n")
        jobs.cancel(second)
        wait_until(lambda: newest().ended)
        assert newest()[:2] == (second, "CANCELLED")
        third = jobs.submit("t-1", ROOT, ["python", "-m", "podline.no_module"], Settings(), "")
        wait_until(lambda: newest().ended)
        assert newest()[:2] == (third, "FAILED")
        assert newest().reason.endswith("No module named podline.no_module")


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
            WorkerLostError, match=r"^worker [01] \([\d.]+:\d+\) is gone; start again, with the nodes left"
        ):
            run_as_job(spec, listener, machine, lambda: False)
