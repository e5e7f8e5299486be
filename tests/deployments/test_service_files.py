"""What units, images and files for clusters name is there: in the project, in Prefect, in Dask, on the command line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker
from prefect.settings import Settings as PrefectSettings
from prefect.settings.legacy import _get_settings_fields

from podline.base.errors import WorkerLostError
from podline.commands.stage import train
from podline.settings.environment import PAGES_SECRET
from podline.settings.launchers import Wanted, discover
from podline.settings.machine import keys, variable_of

PROJECT = Path(__file__).parent.parent.parent
FILES = PROJECT / "deployments"
UNITS = sorted((FILES / "systemd").glob("*.service"))
EXAMPLES = sorted(FILES.rglob("*.env.example"))
CONTAINERS = FILES / "containers"
# Of the images' programs: the first words of a command, and where the options of each are told.
PROGRAMS = ("podline", "prefect", "python")
# Neither Podline's nor Prefect's: of Python, of pip, of PostgreSQL's image, of those who honour it, of TensorFlow.
OTHERS = {"PYTHONUNBUFFERED", "PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK", "POSTGRES_USER", "POSTGRES_PASSWORD"}
OTHERS |= {"DO_NOT_TRACK", "PJRT_DEVICE", "NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"}
# Only names of the composition's own .env.
OF_COMPOSITION = {"PODLINE_RAW_DATA"}


def entries(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def composition() -> dict[str, Any]:
    return yaml.safe_load((CONTAINERS / "docker-compose.yaml").read_text())


def instructions() -> list[list[str]]:
    """Of the Containerfile: each instruction with its words."""
    text = (CONTAINERS / "Containerfile").read_text().replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def commands() -> list[list[str]]:
    of_units = [shlex.split(line) for unit in UNITS for line in entries(unit, "ExecStart(?:Pre)?")]
    of_services = [service["command"] for service in composition()["services"].values() if "command" in service]
    of_images = [yaml.safe_load(" ".join(words)) for name, *words in instructions() if name == "CMD"]
    of_images = [shlex.split(words[2].removeprefix("exec ")) if words[0] == "sh" else words for words in of_images]
    return [[Path(program).name, *words] for program, *words in [*of_units, *of_services, *of_images]]


def variables() -> set[str]:
    assigned = [word for unit in UNITS for line in entries(unit, "Environment") for word in line.split()]
    assigned += [word for name, *words in instructions() if name == "ENV" for word in words]
    assigned += [line for file in EXAMPLES for line in file.read_text().splitlines() if not line.startswith("#")]
    of_services = [name for service in composition()["services"].values() for name in service.get("environment", {})]
    return {assignment.partition("=")[0] for assignment in assigned} | set(of_services)


@cache
def help_of(*command: str) -> str:
    program = {"prefect": ["-m", "prefect"], "podline": ["-m", "podline.cli"], "python": []}[command[0]]
    done = subprocess.run(
        [sys.executable, *program, *command[1:], "--help"], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.slow
def test_every_command_and_option_is_there() -> None:
    found = commands()
    assert len(found) >= 8
    [of_node] = [words for words in found if words[1:3] == ["worker", "start"]]
    assert of_node[of_node.index("--work-queue") + 1].startswith("${PODLINE_TPU_NODE")
    for program, *words in found:
        assert program in PROGRAMS
        if words == ["--help"]:
            continue
        first_option = next(place for place, word in enumerate(words) if word.startswith("--"))
        told = help_of(program, *words[:first_option])
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"(?<!\S){option}\b", told), f"{program} {' '.join(words)}: no {option}"


def test_every_variable_means_something() -> None:
    prefects = set(_get_settings_fields(PrefectSettings))
    ours = {variable_of(key) for key in keys()} | {PAGES_SECRET}
    unknown = variables() - prefects - ours - OTHERS - OF_COMPOSITION
    assert not unknown


def test_the_composition_and_its_images_are_made_of_what_is_there() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (CONTAINERS / "docker-compose.yaml").read_text()))
    example = (CONTAINERS / "podline.env.example").read_text()
    assert asked == set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    secrets = re.findall(r"^\w*(?:PASSWORD|SECRET|AUTH_STRING|CONNECTION_URL)=(.*)$", example, re.MULTILINE)
    assert secrets
    assert all("CHANGE-ME" in secret for secret in secrets)
    stages = {words[2] for name, *words in instructions() if name == "FROM" and len(words) > 2}
    for build in (service["build"] for service in composition()["services"].values() if "build" in service):
        assert (CONTAINERS / build["context"]).resolve() == PROJECT
        assert build["target"] in stages
    from_here = [words for name, *words in instructions() if name == "COPY" and not words[0].startswith("--from=")]
    copied = {source for words in from_here for source in words[:-1]}
    ignored = (CONTAINERS / "Containerfile.dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignored if line[0] == "!"}
    assert all((PROJECT / source).exists() for source in copied)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_understands_the_units_and_they_may_do_little(tmp_path: Path) -> None:
    def analyze(*words: object) -> None:
        command = ["systemd-analyze", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr

    for unit in UNITS:
        text = unit.read_text().replace("/opt/podline/.venv/bin", str(Path(sys.executable).parent))
        (tmp_path / unit.name).write_text(text)
        # The worst allowed is 4.0 of 10.
        analyze("security", "--offline=true", "--threshold=40", unit)
    analyze("verify", *tmp_path.glob("*.service"))


def of_file(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FILES / name).read_text()))


@pytest.mark.parametrize("file", ["job", "jobset"])
def test_a_pod_of_kubernetes_is_one_host_and_starts_again_where_that_may_help(file: str, monkeypatch):
    # It knows no other fields than are there; see its comment.
    schema = json.loads(Path(__file__).with_name("jobset_schema.json").read_text())
    if file == "jobset":
        [jobset] = of_file("kubernetes/jobset.yaml")
        jsonschema.validate(jobset, schema)
        [replicated] = jobset["spec"]["replicatedJobs"]
        spec, jobs = replicated["template"]["spec"], jobset["metadata"]["name"]
        name = f"{jobs}-{replicated['name']}-0-0.{jobs}"
    else:
        service, job = of_file("kubernetes/job.yaml")
        spec, domain = job["spec"], job["spec"]["template"]["spec"]["subdomain"]
        name = f"{job['metadata']['name']}-0.{domain}"
        replicated = schema["properties"]["spec"]["properties"]["replicatedJobs"]["items"]
        jsonschema.validate(spec, replicated["properties"]["template"]["properties"]["spec"])
        # The headless service selects the pods of the job.
        selected = {"job-name": job["metadata"]["name"]}
        assert service["spec"] | {"clusterIP": "None", "selector": selected} == service["spec"]
        assert service["metadata"]["name"] == domain
    [container] = spec["template"]["spec"]["containers"]
    podline, command, *arguments = container["args"]
    assert (podline, command) == ("podline", train.name)
    assert train.make_context("train", arguments).params["strategy"] == "workers"

    [hosts] = [variable["value"] for variable in container["env"] if variable["name"] == "PODLINE_HOSTS"]
    assert int(hosts) == spec["completions"] == spec["parallelism"]
    monkeypatch.setattr("socket.getfqdn", lambda: name)
    cluster = discover({"JOB_COMPLETION_INDEX": "0"}, Wanted(2222, hosts))
    assert cluster.addresses[0] == f"{name}:2222"

    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert WorkerLostError.exit_code in rule["onExitCodes"]["values"]


def test_the_file_of_slurm_starts_again_where_that_may_help():
    text = (FILES / "slurm" / "train.sbatch").read_text()
    assert f"code == {WorkerLostError.exit_code} " in text
    [line] = re.findall(r"podline (.*)", text.partition("restarts=")[2])
    command, _, *arguments = line.split()
    assert command == train.name
    assert train.make_context("train", ["cifar10", *arguments]).params["strategy"] == "workers"


DASK = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def test_each_container_of_dask_runs_one_of_its_commands_in_podline_s_image() -> None:
    [compose], [cluster] = of_file("containers/dask-compose.yaml"), of_file("dask-cluster.yaml")
    services, spec = compose["services"], cluster["spec"]
    assert {service["image"] for service in services.values()} == {"podline:cpu"}
    of_kubernetes = {name: spec[name]["spec"]["containers"][0] for name in DASK}
    commands = [(name, service["command"]) for name, service in services.items()]
    commands += [(name, container["args"]) for name, container in of_kubernetes.items()]
    for name, (program, command, *options) in commands:
        assert (program, command) == ("dask", name)
        DASK[name].make_context(name, [str(option) for option in options])
    ports = {port["name"] for port in of_kubernetes["scheduler"]["ports"]}
    assert {port["targetPort"] for port in spec["scheduler"]["service"]["ports"]} == ports
