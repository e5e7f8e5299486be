"""The set-up guide: its commands are read out of docs/how-to/tpu.md and run, in its order, with its settings file.

A stand-in answers for Google, and a real Prefect server is the guide's. Google's own commands are not run: each is
compared with a table of what Google's reference says, and what it names has to be there by then.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.testing.cli import CycloptsCliRunner
from prefect_servers import delete_automations
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import Attempt, Script

from podline import cli, settings
from podline.tpu.clock import SystemClock

PROJECT = Path(__file__).resolve().parent.parent.parent
GUIDE = (PROJECT / "docs" / "how-to" / "tpu.md").read_text(encoding="utf-8")
# They run until they are ended; the server is the test's own. A worker says this when it is up.
SERVER, UP = "podline.deployments.server", "started!"
PREFECT = ("PREFECT_API_", "PREFECT_SERVER_")
# Options whose value names something that has to be there.
NAMES = ("--project", "--image-project", "--member", "--service-account")


def _options(words: str) -> frozenset[str]:
    return frozenset(f"--{word}" for word in words.split())


# Google's commands, from https://cloud.google.com/sdk/gcloud/reference: the service that has to be enabled, the options
# that the guide needs of each, which have to be given, and those that take no value.
GCLOUD = {
    "services enable": ("", _options("project"), _options("")),
    "iam service-accounts create": ("iam", _options("project"), _options("")),
    "iam service-accounts add-iam-policy-binding": ("iam", _options("project member role"), _options("")),
    "projects add-iam-policy-binding": ("", _options("member role"), _options("")),
    "storage buckets create": (
        "storage",
        _options("project location"),
        _options("uniform-bucket-level-access public-access-prevention"),
    ),
    "storage buckets add-iam-policy-binding": ("storage", _options("member role"), _options("")),
    "storage cp": ("storage", _options(""), _options("")),
    "secrets create": ("secretmanager", _options("project replication-policy data-file"), _options("")),
    "secrets add-iam-policy-binding": ("secretmanager", _options("project member role"), _options("")),
    "compute instances create": (
        "compute",
        _options("project zone machine-type image-family image-project boot-disk-size service-account scopes"),
        _options(""),
    ),
    "compute instances describe": ("compute", _options("project zone format"), _options("")),
    "compute ssh": ("compute", _options("project zone"), _options("")),
    "compute tpus tpu-vm versions list": ("tpu", _options("project zone"), _options("")),
}
# What each account needs: the small machine's makes nodes that run as the other one; both use the store.
ROLES = {
    "podline-flows": {"roles/tpu.admin", "roles/iam.serviceAccountUser", "roles/storage.objectAdmin"},
    "podline-node": {"roles/tpu.viewer", "roles/storage.objectAdmin", "roles/secretmanager.secretAccessor"},
}


def blocks(language: str) -> list[str]:
    """The blocks of code in the guide."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


def lines() -> list[str]:
    """The guide's command lines, in its order."""
    return [line for block in blocks("sh") for line in block.splitlines()]


def commands() -> list[str]:
    """Those that are run here: Podline's and Prefect's."""
    return [line for line in lines() if line.split()[0] in ("podline", "prefect", "python")]


def test_the_guide_knows_only_commands_that_are_run_or_checked_here() -> None:
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    others = [line for line in lines() if line not in commands() and "gcloud " not in line]
    assert all(line.removeprefix("make ") in targets for line in others if line.startswith("make "))
    exported = [line.removeprefix("export ").partition("=")[0] for line in others if line.startswith("export ")]
    assert all(name in ("SECRET", "PODLINE_SETTINGS") or name.startswith(PREFECT) for name in exported)
    assert {line.split()[0] for line in others} == {"make", "export"}
    assert len(blocks("toml")) == 1


def parsed(line: str) -> tuple[str, list[str], dict[str, str]]:
    """A command of Google's: its name, its arguments, its options."""
    words = shlex.split(line.rpartition("gcloud ")[2])
    name = next(name for name in sorted(GCLOUD, key=len, reverse=True) if words[: len(name.split())] == name.split())
    rest, given = words[len(name.split()) :], dict[str, str]()
    arguments = list[str]()
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            arguments.append(word)
        elif word in GCLOUD[name][2]:
            given[word] = ""
        else:
            option, is_joined, value = word.partition("=")
            given[option] = value if is_joined else rest.pop(0)
    return name, arguments, given


def test_google_s_commands_are_its_reference_s_and_name_what_is_there_by_then() -> None:
    there, roles = {"my-project", "debian-cloud"}, dict[str, set[str]]()
    for line in (line for line in lines() if "gcloud " in line):
        name, arguments, given = parsed(line)
        service, needed, flags = GCLOUD[name]
        assert set(given) == needed | flags, line
        assert not service or f"{service}.googleapis.com" in there, f"{service} is not enabled before: {line}"
        made = {
            "services enable": arguments,
            "iam service-accounts create": [f"{word}@my-project.iam.gserviceaccount.com" for word in arguments],
            "storage cp": [f"{arguments[-1]}{Path(word).name}" for word in arguments[:-1]],
        }.get(name, arguments if name.endswith(" create") else [])
        there |= set(made)
        used = [] if made else arguments
        used += [value.removeprefix("serviceAccount:") for option, value in given.items() if option in NAMES]
        assert not set(used) - there, line
        if "--role" in given:
            account = given["--member"].removeprefix("serviceAccount:").partition("@")[0]
            roles.setdefault(account, set()).add(given["--role"])
    assert roles == ROLES

    settings_file = tomllib.loads(blocks("toml")[0])
    tpu, spec = settings_file["tpu"], settings_file["tpu"]["spec"]
    wanted = {tpu["api"]["project"], spec["service_account"], spec["install"], spec["prefect_secret"]}
    wanted |= {settings_file["root"].removesuffix("/podline"), f"{spec['install'].rpartition('/')[0]}/tpu.lock"}
    assert not wanted - there
    assert set(re.findall(r"--zone (\S+)", GUIDE)) == {tpu["api"]["zone"]}
    assert f"--location {tpu['api']['zone'][:-2]} " in GUIDE


@pytest.fixture
def cloud(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """The stand-in, for someone who follows the guide in the project's folder; Prefect's server is as new."""
    (tmp_path / "podline.toml").write_text(blocks("toml")[0])
    _forget()
    cloud = Cloud(SystemClock(), Script(life=None, creates=(Attempt(0.5),)))
    with serving(cloud) as address:
        monkeypatch.chdir(PROJECT)
        monkeypatch.setenv("PYTHONPATH", str(PROJECT))
        monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value() or "")
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
        monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
        monkeypatch.setenv("PODLINE_TPU_API_ENDPOINT", address)
        monkeypatch.setenv("PODLINE_TPU_API_INSECURE", "true")
        monkeypatch.setenv("PODLINE_TPU_API_OPERATION_POLL", "0.2")
        monkeypatch.setenv("PODLINE_TPU_LIMITS_POLL", "0.3")
        monkeypatch.setenv("PODLINE_TPU_FOLDER", str(tmp_path))
        yield cloud
    _forget()


def _forget() -> None:
    """The other tests of this server have neither these deployments nor their schedules."""
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
        for name in ("cpu", "tpu"):
            with contextlib.suppress(ObjectNotFound):
                client.delete_work_pool(name)
        with contextlib.suppress(ObjectNotFound):
            client.delete_global_concurrency_limit_by_name("tpu")
        delete_automations(client)


def run(command: str) -> str:
    """What a command printed; it must end well, or, if it is a worker, come up."""
    program, *words = shlex.split(command)
    if (program, words[0]) == ("podline", "worker"):
        return _came_up([sys.executable, "-m", "podline.cli", *words])
    if SERVER in words:
        helped = subprocess.run([sys.executable, *words[:2], "--help"], capture_output=True, text=True, check=True)
        assert all(word in helped.stdout for word in words if word.startswith("--"))
        return ""
    # In this process: importing Prefect for each of its commands takes longer than all else here.
    if program == "prefect":
        done = CycloptsCliRunner().invoke(words)
        assert done.exit_code == 0, f"{command}\n{done.output}"
        return done.stdout
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0, f"{command}\n{said.getvalue()}"
    return said.getvalue()


def _came_up(line: list[str]) -> str:
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as worker:
        assert worker.stdout is not None
        said = []
        try:
            for text in worker.stdout:
                said.append(text)
                if UP in text:
                    return "".join(said)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
    raise AssertionError("".join(said))


@pytest.mark.slow
def test_whoever_follows_the_guide_has_a_node_and_a_run(cloud: Cloud) -> None:
    said: dict[str, list[str]] = {}
    for command in commands():
        said.setdefault(command, []).append(run(command))
    before, after = said["podline tpu status"]
    assert f"{NODE}: ABSENT" in before
    assert f"{NODE}: READY, HEALTHY" in after
    assert "v5litepod-8, tpu-vm-tf-2.20.0-pjrt" in after

    spec, made = settings.load().tpu, cloud.get_node(NODE)
    assert spec is not None
    assert spec.spec is not None
    assert made.metadata["startup-script"] == (PROJECT / "deployments" / "tpu-startup.sh").read_text(encoding="utf-8")
    assert made.metadata["podline-install"] == spec.spec.install
    assert made.metadata["podline-prefect-secret"] == "prefect"
    (patrolled,) = said["podline tpu patrol"]
    assert f"node {NODE}: READY, HEALTHY" in patrolled
    with get_client(sync_client=True) as client:
        deployments = {deployment.name: deployment for deployment in client.read_deployments()}
        assert {"cifar-manual", "tpu-stage", "tpu-patrol"} <= set(deployments)
        assert deployments["tpu-stage"].work_pool_name == "tpu"
        assert deployments["tpu-patrol"].schedules
        runs = [run for run in client.read_flow_runs() if run.deployment_id == deployments["cifar-manual"].id]
        assert [run.parameters for run in runs] == [{"parameters": {"recipe": "sample"}}]
    gc.collect()
