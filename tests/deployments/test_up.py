"""A server, a worker and deployments that stay: started, found again, deployed to again, stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from podline.deployments import project_file
from podline.deployments.deployment_process import deployed
from podline.deployments.up import MARK, Place, Standing, use_secret
from podline.errors import PodlineError, SettingsError
from podline.settings import Settings
from podline.supervision import processes
from podline.tasks.secret import header

PROJECT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def place_in(root: Path) -> Place:
    return Place(Settings(root=str(root), server_timeout=180))


def deployments(port: int, secret: str) -> tuple[int, dict[str, str]]:
    """The status of the answer; by name, the pool of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    asked = {"Content-Type": "application/json", **header(secret)}
    connection.request("POST", "/api/deployments/filter", b"{}", asked)
    answer = connection.getresponse()
    found = json.load(answer)
    connection.close()
    if answer.status != 200:
        return answer.status, {}
    return answer.status, {deployment["name"]: deployment["work_pool_name"] for deployment in found}


def told(root: Path) -> set[str]:
    """What all processes of the server and the worker were started with; anybody may read it."""
    ours = processes.marked(MARK, str(root / ".podline" / "standing"))
    return {Path(f"/proc/{process}/cmdline").read_text() for process in ours}


def workers(root: Path) -> list[int]:
    ours = processes.marked(MARK, str(root / ".podline" / "standing"))
    return [process for process in ours if "podline.deployments.worker" in processes.command(process)]


def project_without_its_flow(folder: Path) -> Path:
    """A project that reads well, and that Prefect refuses to deploy."""
    (folder / "flows").mkdir()
    (folder / "flows" / "night.py").write_text("")
    night = "{name: night, entrypoint: flows/night.py:night, work_pool: {name: cpu}}"
    (folder / "prefect.yaml").write_text(f"deployments: [{night}]")
    return folder


def test_a_folder_without_deployments_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"{tmp_path}/prefect.yaml cannot be read .*--project"):
        list(deployed(tmp_path))


def test_without_a_project_the_current_folder_counts_if_its_file_is_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_file.default_folder() == PROJECT
    file = tmp_path / "prefect.yaml"
    for text, is_ours in {
        "name: shop\ndeployments: []\n": False,
        "- a list\n": False,
        "name: podline\ndeployments: []\n": True,
        "name: [podline\n": True,
    }.items():
        file.write_text(text)
        assert project_file.default_folder() == (tmp_path if is_ours else PROJECT), text
    with pytest.raises(SettingsError, match="is no file of deployments"):
        project_file.read(tmp_path)


def test_runs_of_a_checkout_work_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not project_file.is_installed()
    (step,) = project_file.read(PROJECT)["pull"]
    assert list(step.values()) == [{"directory": "{{ $PWD }}"}]
    monkeypatch.setattr(project_file, "_HERE", tmp_path)
    (tmp_path / "prefect.yaml").write_text((PROJECT / "prefect.yaml").read_text())
    assert project_file.read(tmp_path)["pull"] == []


def test_without_a_server_there_is_nothing_to_deploy_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(SettingsError, match="set PREFECT_API_URL"):
        list(deployed(PROJECT))
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    with pytest.raises(PodlineError, match="does not answer"):
        list(deployed(PROJECT))


def test_a_taken_port_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"--port {port}: nobody can listen there"):
            place_in(tmp_path).up("127.0.0.1", port, PROJECT, print)
    assert not place_in(tmp_path).down(print)


def test_in_a_wrong_folder_nothing_is_started(tmp_path: Path) -> None:
    root, said = tmp_path / "root", list[str]()
    with pytest.raises(SettingsError, match=rf"{tmp_path}/prefect.yaml cannot be read .*--project"):
        place_in(root).up("127.0.0.1", free_port(), tmp_path, said.append)
    (tmp_path / "prefect.yaml").write_text("deployments: [{name: night, entrypoint: flows/night.py:night}]")
    with pytest.raises(SettingsError, match=r"flows/night.py, the flow of night, is missing; .*--project"):
        place_in(root).up("127.0.0.1", free_port(), tmp_path, said.append)
    assert not said
    assert not root.exists() or not processes.marked(MARK, str(root / ".podline" / "standing"))


def test_the_secret_goes_to_the_server_that_is_up_and_to_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Settings(root=str(tmp_path))
    standing = Standing(host="127.0.0.1", port=4200, server=os.getpid())
    folder = tmp_path / ".podline" / "standing"
    folder.mkdir(parents=True)
    (folder / "standing.json").write_text(standing.model_dump_json())
    (folder / "secret").write_text("night:shift\n")
    monkeypatch.setattr(processes, "marked", lambda *_mark: [standing.server])
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")  # so that what is set below is gone in the end
    for url, secret in {
        "http://evil.example:4200/api": None,
        "http://127.0.0.1:4201/api": None,
        "": None,
        "http://localhost:4200/api": "night:shift",
    }.items():
        monkeypatch.setenv("PREFECT_API_URL", url)
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
        use_secret(machine)
        assert os.environ["PREFECT_API_AUTH_STRING"] == (secret or "")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "my:own")
    use_secret(machine)
    assert os.environ["PREFECT_API_AUTH_STRING"] == "my:own"
    # The file stays when the server is gone; whoever listens there now is somebody else.
    monkeypatch.setattr(processes, "marked", lambda *_mark: [])
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
    use_secret(machine)
    assert not os.environ["PREFECT_API_AUTH_STRING"]


@pytest.mark.slow
def test_up_twice_and_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    port, said = free_port(), list[str]()
    scratch = tmp_path / ".podline"
    scratch.mkdir(mode=0o755)
    try:
        standing = place_in(tmp_path).up("127.0.0.1", port, PROJECT, said.append)
        assert {line.rpartition(": ")[2] for line in said if line.startswith("deployment ")} == {"made"}
        secret = (scratch / "standing" / "secret").read_text().strip()
        assert said[-1] == f"secret             {secret}, kept in {scratch}/standing/secret"
        assert deployments(port, "")[0] == 401
        status, found = deployments(port, secret)
        assert status == 200
        assert found["cifar-manual"] == "cpu"
        assert "tpu-stage" not in found  # no TPU is set
        assert len(told(tmp_path)) >= 2
        assert not [command for command in told(tmp_path) if secret in command]
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        assert stat.S_IMODE((scratch / "standing" / "prefect" / "prefect.db").stat().st_mode) == 0o600

        said.clear()
        again = place_in(tmp_path).up("127.0.0.1", port, PROJECT, said.append)
        assert again == standing
        assert sum(line.endswith("as it was") for line in said) == len(found) + 3
        assert not [line for line in said if line.endswith(("made", "changed")) or secret in line]
        assert said[-1] == f"secret             in {scratch}/standing/secret"

        monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "another:one")
        with pytest.raises(SettingsError, match="started with a secret: PREFECT_SERVER_API_AUTH_STRING is another one"):
            place_in(tmp_path).up("127.0.0.1", port, PROJECT, print)
        monkeypatch.delenv("PREFECT_SERVER_API_AUTH_STRING")
        (scratch / "standing" / "secret").write_text("another:one")
        with pytest.raises(SettingsError, match="PREFECT_SERVER_API_AUTH_STRING is not set"):
            place_in(tmp_path).up("127.0.0.1", port, PROJECT, print)
        (scratch / "standing" / "secret").write_text(secret)

        # A server that was killed: its worker is found, and works for the next one.
        os.kill(standing.server, signal.SIGKILL)
        os.waitpid(standing.server, 0)
        # What the new one refuses ends it again, and leaves the worker.
        with pytest.raises(PodlineError, match="prefect deploy"):
            place_in(tmp_path).up("127.0.0.1", port, project_without_its_flow(tmp_path), said.append)
        assert workers(tmp_path) == [standing.worker]
        assert not [command for command in told(tmp_path) if "podline.deployments.server" in command]
        there = place_in(tmp_path).up("127.0.0.1", port, PROJECT, said.append)
        assert there.worker == standing.worker
        assert there.server != standing.server
        assert workers(tmp_path) == [standing.worker]
        # At another port it could not find it.
        os.kill(there.server, signal.SIGKILL)
        os.waitpid(there.server, 0)
        elsewhere = place_in(tmp_path).up("127.0.0.1", free_port(), PROJECT, said.append)
        assert workers(tmp_path) == [elsewhere.worker] != [standing.worker]
    finally:
        assert place_in(tmp_path).down(said.append)
    mark = str(tmp_path / ".podline" / "standing")
    assert not processes.marked(MARK, mark)
    assert not place_in(tmp_path).down(said.append)
