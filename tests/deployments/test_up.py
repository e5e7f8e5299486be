"""``podline up`` starts nothing that cannot be, shows no secret, and leaves nothing when it ends, however it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from free_ports import free_ports
from prefect.settings import PREFECT_API_URL, temporary_settings
from standing_prefect import podline_up
from waiting import wait_until

from podline.base.errors import PodlineError, SettingsError
from podline.cli import cli
from podline.deployments import project_file
from podline.deployments.deploy import deployed
from podline.deployments.up import MARK, UpFolder, use_secret
from podline.deployments.worker import work
from podline.settings.machine import Settings
from podline.stages.supervision import processes
from podline.store.locks import locked

PROJECT = Path(__file__).parents[2]


def up(root: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["up", "--root", str(root), *options])


def _command(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ")


def test_without_a_project_the_current_folder_counts_if_its_file_is_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_file.default_folder() == PROJECT
    file = tmp_path / "prefect.yaml"
    for text, folder in {
        "name: shop\ndeployments: []\n": PROJECT,
        "- a list\n": PROJECT,
        "name: podline\ndeployments: []\n": tmp_path,
        "name: [podline\n": tmp_path,
    }.items():
        file.write_text(text)
        assert project_file.default_folder() == folder, text
    with pytest.raises(SettingsError, match="is not a valid deployment file"):
        project_file.read(tmp_path)
    # Runs of a checkout work in it, those of an installed package in folders of their own.
    assert project_file.read(PROJECT)["pull"] != []
    monkeypatch.setattr(project_file, "_HERE", tmp_path)
    file.write_text((PROJECT / "prefect.yaml").read_text())
    assert project_file.read(tmp_path)["pull"] == []


def test_without_a_server_there_is_nothing_to_deploy_to_or_to_work_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with pytest.raises(SettingsError, match="PREFECT_API_URL"):
            list(deployed(PROJECT))
        with pytest.raises(SettingsError, match="PREFECT_API_URL"):
            work("cpu", "", until_input_ends=False)
    away = temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_ports(1)[0]}/api"})
    with away, pytest.raises(PodlineError, match="does not answer"):
        list(deployed(PROJECT))


def test_at_a_taken_port_or_in_a_wrong_folder_nothing_is_started(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error = up(tmp_path / "other", "--port", port, "--project", str(PROJECT)).exception
    assert isinstance(error, SettingsError)
    assert not (tmp_path / "other" / ".podline" / "server" / "secret").exists()
    assert f"--port {port}: cannot listen" in str(error)
    unread = str(up(root, "--project", str(tmp_path)).exception)
    assert re.match(rf"{tmp_path}/prefect.yaml cannot be read .*--project", unread)
    (tmp_path / "prefect.yaml").write_text("deployments: [{name: night, entrypoint: flows/night.py:night}]")
    refused = up(root, "--project", str(tmp_path))
    assert "flows/night.py, the flow of night, is missing" in str(refused.exception)
    assert not (root / ".podline" / "server").exists()


def test_the_secret_goes_to_the_server_that_is_up_and_to_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Settings(root=str(tmp_path))
    folder = tmp_path / ".podline" / "server"
    folder.mkdir(parents=True)
    (folder / "lock").write_text("http://127.0.0.1:4200")
    (folder / "secret").write_text("night:shift\n")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")  # so that what is set below is gone in the end
    with locked(folder / "lock", wait=False):  # as a `podline up` that runs
        for url, given, used in (
            ("http://evil.example:4200/api", "", ""),
            ("http://127.0.0.1:4201/api", "", ""),
            ("", "", ""),
            ("http://localhost:4200/api", "my:own", "my:own"),
            ("http://localhost:4200/api", "", "night:shift"),
        ):
            monkeypatch.setenv("PREFECT_API_URL", url)
            monkeypatch.setenv("PREFECT_API_AUTH_STRING", given)
            use_secret(machine)
            assert os.environ["PREFECT_API_AUTH_STRING"] == used
    # The files stay when the server is gone; another program may listen there now.
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
    use_secret(machine)
    assert not os.environ["PREFECT_API_AUTH_STRING"]


@pytest.mark.slow
def test_up_runs_until_it_is_ended_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scratch = tmp_path / "root" / ".podline"
    scratch.mkdir(mode=0o755, parents=True)
    with podline_up(tmp_path) as standing:
        said = standing.log.read_text()
        assert f"in {scratch}/server/secret\n" in said
        assert f"in {scratch}/server/pages-secret\n" in said
        secrets = f"{standing.secret}|{standing.pages_secret}"
        assert not re.search(secrets, said)
        # Whoever reads a report may not start a run.
        login, of_pages = (standing.login(secret) for secret in (standing.secret, standing.pages_secret))
        assert httpx.get(f"{standing.pages}/", auth=of_pages).status_code == 303
        assert httpx.get(f"{standing.pages}/", auth=login).status_code == 401
        for auth in (of_pages, None):
            refused = httpx.post(f"{standing.url}/api/deployments/filter", json={}, auth=auth)
            assert refused.status_code == 401
        assert "deploy | deployment         sample-manual: made" in said
        found = {each["name"]: each["work_pool_name"] for each in standing.ask("deployments/filter", {})}
        assert found["sample-manual"] == "cpu"
        assert "tpu-stage" not in found  # no TPU is set
        ours = processes.marked(MARK, str(standing.folder))
        assert len(ours) >= 2
        assert not [each for each in ours if re.search(secrets, _command(each))]
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        assert stat.S_IMODE((standing.folder / "prefect" / "prefect.db").stat().st_mode) == 0o600

        # A second one says where the first is.
        again = up(standing.root, "--project", str(PROJECT)).exception
        assert str(again) == f"{standing.root}: `podline up` already runs for it, at {standing.url}"
        # Commands of this machine find the secret.
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
        deploy = standing.command("deploy", PREFECT_API_URL=f"{standing.url}/api", PODLINE_ROOT=str(standing.root))
        assert deploy.returncode == 0, deploy.stderr
        assert deploy.stdout.count("as it was") == len(found) + 3

        # A program that ends takes the others with it, and the last line says which it was.
        (worker,) = [each for each in ours if "podline.cli worker" in _command(each)]
        os.kill(worker, signal.SIGKILL)
        assert standing.process.wait(60) == 1
        assert standing.log.read_text().endswith(
            "podline: error: the worker ended with exit code -9; its last lines are above\n"
        )
        assert not processes.marked(MARK, str(standing.folder))


@pytest.mark.slow
def test_nothing_outlives_a_killed_up_and_a_flow_that_is_refused_ends_it(tmp_path: Path) -> None:
    with podline_up(tmp_path) as standing:
        standing.process.kill()
        wait_until(lambda: not processes.marked(MARK, str(standing.folder)))
    project = tmp_path / "project"
    (project / "flows").mkdir(parents=True)
    (project / "flows" / "night.py").write_text("")
    night = "{name: night, entrypoint: flows/night.py:night, work_pool: {name: cpu}}"
    (project / "prefect.yaml").write_text(f"deployments: [{night}]")
    with pytest.raises(PodlineError, match="the deploy ended with"):
        UpFolder(Settings(root=str(standing.root))).up("127.0.0.1", free_ports(1)[0], project, print, 300)
    assert not processes.marked(MARK, str(standing.folder))
