"""The files that start a training on several hosts: their commands are ones that podline has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from podline.commands.stage import train
from podline.errors import WorkerLostError
from podline.launchers import Wanted, discover

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


def schema() -> dict[str, Any]:
    """The schema of a JobSet, see its comment; it knows no other fields than are there."""
    return json.loads(Path(__file__).with_name("jobset_schema.json").read_text())


def schema_of_job() -> dict[str, Any]:
    """The schema of a Job's spec, which that of a JobSet has in it."""
    replicated = schema()["properties"]["spec"]["properties"]["replicatedJobs"]["items"]
    return replicated["properties"]["template"]["properties"]["spec"]


def test_the_files_of_kubernetes_fit_the_published_schemas():
    jobset = yaml.safe_load((DEPLOYMENTS / "kubernetes" / "jobset.yaml").read_text())
    jsonschema.validate(jobset, schema())
    job, _ = jobs()["job"]
    jsonschema.validate(job, schema_of_job())
    with pytest.raises(jsonschema.ValidationError, match="'completionmode' was unexpected"):
        jsonschema.validate(job | {"completionmode": "Indexed"}, schema_of_job())
