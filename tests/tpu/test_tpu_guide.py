"""The set-up guide: its commands are read out of docs/how-to/tpu.md and run, in its order, with its settings file.

A stand-in answers for Google, and a real Prefect server is the guide's. Google's own commands are not run.
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
from prefect.settings import PREFECT_API_URL
from prefect.testing.cli import CycloptsCliRunner
from prefect_servers import clear
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import Attempt, Script

from podline import cli
from podline.settings import machine as settings
from podline.tpu.clock import SystemClock

PROJECT = Path(__file__).resolve().parent.parent.parent
GUIDE = (PROJECT / "docs" / "how-to" / "tpu.md").read_text(encoding="utf-8")
# They run until they are ended; the server is the test's own. A worker says this when it is up.
SERVER, UP = "podline.deployments.server", "started!"
# Google's commands with their options, from https://cloud.google.com/sdk/gcloud/reference.
GCLOUD = {
    "services enable": "project",
    "iam service-accounts create": "project",
    "iam service-accounts add-iam-policy-binding": "project member role",
    "projects add-iam-policy-binding": "member role",
    "storage buckets create": "project location uniform-bucket-level-access public-access-prevention",
    "storage buckets add-iam-policy-binding": "member role",
    "storage cp": "",
    "secrets create": "project replication-policy data-file",
    "secrets add-iam-policy-binding": "project member role",
    "compute instances create": "project zone machine-type image-family image-project boot-disk-size service-account "
    "scopes",
    "compute instances describe": "project zone format",
    "compute ssh": "project zone",
    "compute tpus tpu-vm versions list": "project zone",
}
# What each account needs: the small machine's makes nodes that run as the other one; both use the store.
ROLES = {
    "podline-flows": {"roles/tpu.admin", "roles/iam.serviceAccountUser", "roles/storage.objectAdmin"},
    "podline-node": {"roles/tpu.viewer", "roles/storage.objectAdmin", "roles/secretmanager.secretAccessor"},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


def lines() -> list[str]:
    """The guide's command lines, in its order."""
    return [line for block in blocks("sh") for line in block.splitlines()]


def commands() -> list[str]:
    """Those that are run here: Podline's and Prefect's."""
    return [line for line in lines() if line.split()[0] in ("podline", "prefect", "python")]


def google() -> list[str]:
    return [line.rpartition("gcloud ")[2] for line in lines() if "gcloud " in line]


def test_google_s_commands_have_the_options_of_its_reference() -> None:
    for command in google():
        [options] = [options for name, options in GCLOUD.items() if command.startswith(f"{name} ")]
        assert set(re.findall(r"--([a-z-]+)", command)) == set(options.split()), command


def test_google_s_commands_make_what_the_settings_name_with_the_roles_that_each_account_needs() -> None:
    there, roles = "\n".join(google()), dict[str, set[str]]()
    for role, account in re.findall(r"--role (\S+) --member serviceAccount:(\S+)@", there):
        assert re.search(rf"service-accounts create {account}\b", there)
        roles.setdefault(account, set()).add(role)
    assert roles == ROLES

    settings_file = tomllib.loads(blocks("toml")[0])
    tpu, spec = settings_file["tpu"], settings_file["tpu"]["spec"]
    folder, _, wheel = spec["install"].rpartition("/")
    assert f"buckets create {settings_file['root'].removesuffix('/podline')} " in there
    assert re.search(rf"storage cp \S*{wheel} \S*tpu\.lock {folder}/", there)
    assert f"secrets create {spec['prefect_secret']} " in there
    assert set(re.findall(r"--project[ =](\S+)", there)) == {tpu["api"]["project"]}
    assert spec["service_account"] == f"podline-node@{tpu['api']['project']}.iam.gserviceaccount.com"
    assert set(re.findall(r"--zone (\S+)", there)) == {tpu["api"]["zone"]}
    assert f"--location {tpu['api']['zone'][:-2]} " in there


@pytest.fixture
def cloud(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """The stand-in, for someone who follows the guide in the project's folder; Prefect's server is as new."""
    (tmp_path / "podline.toml").write_text(blocks("toml")[0])
    with get_client(sync_client=True) as client:
        clear(client)
    cloud = Cloud(SystemClock(), Script(life=None, creates=(Attempt(0.5),)))
    with serving(cloud) as address:
        monkeypatch.chdir(PROJECT)
        monkeypatch.setenv("PYTHONPATH", str(PROJECT))
        monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value() or "")
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
        monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
        values = {"API_ENDPOINT": address, "API_INSECURE": "true", "API_OPERATION_POLL": "0.2", "LIMITS_POLL": "0.3"}
        for name, value in {**values, "FOLDER": str(tmp_path)}.items():
            monkeypatch.setenv(f"PODLINE_TPU_{name}", value)
        yield cloud
    with get_client(sync_client=True) as client:
        clear(client)


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
        assert {"sample-manual", "tpu-stage", "tpu-patrol"} <= set(deployments)
        assert deployments["tpu-stage"].work_pool_name == "tpu"
        assert deployments["tpu-patrol"].schedules
        runs = [run for run in client.read_flow_runs() if run.deployment_id == deployments["sample-manual"].id]
        assert [run.parameters for run in runs] == [{"parameters": {"recipe": "sample"}}]
    gc.collect()
