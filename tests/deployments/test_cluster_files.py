"""Files for clusters, of Kubernetes, Slurm and Dask: their commands are ones that Podline and Dask have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

from podline.base.errors import WorkerLostError
from podline.commands.stage import train
from podline.settings.launchers import Wanted, discover

DEPLOYMENTS = Path(__file__).resolve().parents[2] / "deployments"


def jobs() -> dict[str, tuple[dict[str, Any], str]]:
    """The spec of each file's Job, and the name of its first pod."""
    _, job = yaml.safe_load_all((DEPLOYMENTS / "kubernetes" / "job.yaml").read_text())
    jobset = yaml.safe_load((DEPLOYMENTS / "kubernetes" / "jobset.yaml").read_text())
    [replicated] = jobset["spec"]["replicatedJobs"]
    in_set = f"{jobset['metadata']['name']}-{replicated['name']}-0-0.{jobset['metadata']['name']}"
    alone = f"{job['metadata']['name']}-0.{job['spec']['template']['spec']['subdomain']}"
    return {"job": (job["spec"], alone), "jobset": (replicated["template"]["spec"], in_set)}


@pytest.mark.parametrize("file", ["job", "jobset"])
def test_a_pod_of_kubernetes_is_one_host_and_starts_again_where_that_may_help(file: str):
    spec, name = jobs()[file]
    [container] = spec["template"]["spec"]["containers"]
    podline, command, *arguments = container["args"]
    assert (podline, command) == ("podline", train.name)
    assert train.make_context("train", arguments).params["strategy"] == "workers"

    [hosts] = [variable["value"] for variable in container["env"] if variable["name"] == "PODLINE_HOSTS"]
    assert int(hosts) == spec["completions"] == spec["parallelism"]
    cluster = discover({"JOB_COMPLETION_INDEX": "0"}, Wanted(2222, hosts), lambda: name)
    assert cluster.addresses[0] == f"{name}:2222"

    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert WorkerLostError.exit_code in rule["onExitCodes"]["values"]


def test_the_headless_service_selects_the_pods_of_the_job():
    service, job = yaml.safe_load_all((DEPLOYMENTS / "kubernetes" / "job.yaml").read_text())
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}


def test_the_file_of_slurm_starts_again_where_that_may_help():
    text = (DEPLOYMENTS / "slurm" / "train.sbatch").read_text()
    assert f"code == {WorkerLostError.exit_code} " in text
    [line] = re.findall(r"podline (.*)", text.partition("restarts=")[2])
    command, _, *arguments = line.split()
    assert command == train.name
    assert train.make_context("train", ["cifar10", *arguments]).params["strategy"] == "workers"


def test_the_files_of_kubernetes_fit_the_published_schemas():
    # It knows no other fields than are there; see its comment.
    schema = json.loads(Path(__file__).with_name("jobset_schema.json").read_text())
    jsonschema.validate(yaml.safe_load((DEPLOYMENTS / "kubernetes" / "jobset.yaml").read_text()), schema)
    replicated = schema["properties"]["spec"]["properties"]["replicatedJobs"]["items"]
    jsonschema.validate(jobs()["job"][0], replicated["properties"]["template"]["properties"]["spec"])


DASK = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def test_each_container_of_dask_runs_one_of_its_commands_in_podline_s_image() -> None:
    services = yaml.safe_load((DEPLOYMENTS / "containers" / "dask-compose.yaml").read_text())["services"]
    assert {service["image"] for service in services.values()} == {"podline:cpu"}
    spec = yaml.safe_load((DEPLOYMENTS / "dask-cluster.yaml").read_text())["spec"]
    of_kubernetes = {name: spec[name]["spec"]["containers"][0] for name in DASK}
    commands = [(name, service["command"]) for name, service in services.items()]
    commands += [(name, container["args"]) for name, container in of_kubernetes.items()]
    for name, (program, command, *options) in commands:
        assert (program, command) == ("dask", name)
        DASK[name].make_context(name, [str(option) for option in options])
    ports = {port["name"] for port in of_kubernetes["scheduler"]["ports"]}
    assert {port["targetPort"] for port in spec["scheduler"]["service"]["ports"]} == ports


def test_workers_of_beam_and_dask_start_from_the_releases_that_are_locked() -> None:
    lock = (DEPLOYMENTS / "cpu.lock").read_text()
    assert "dask==" in lock
    [beam] = re.findall(r"^apache-beam==(\S+)", lock, re.MULTILINE)
    assert f"beam_python3.11_sdk:{beam} " in (DEPLOYMENTS / "containers" / "Containerfile").read_text()
