"""A server, a worker and deployments that stay: started, found again, deployed to again, stopped."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

import pytest

from podline import processes
from podline.errors import PodlineError, SettingsError
from podline.settings import Settings
from tasks.standing import MARK, Place, deployed

PROJECT = Path(__file__).parent.parent.parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def place_in(root: Path) -> Place:
    return Place(Settings(root=str(root), server_timeout=180))


def deployments(port: int) -> dict[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/api/deployments/filter", b"{}", {"Content-Type": "application/json"})
    found = json.load(connection.getresponse())
    connection.close()
    return {deployment["name"]: deployment["work_pool_name"] for deployment in found}


def test_a_folder_without_deployments_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"{tmp_path}/prefect.yaml cannot be read .*--project"):
        list(deployed(tmp_path))


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


@pytest.mark.slow
def test_up_twice_and_down(tmp_path: Path) -> None:
    port, said = free_port(), list[str]()
    try:
        standing = place_in(tmp_path).up("127.0.0.1", port, PROJECT, said.append)
        assert {line.rpartition(": ")[2] for line in said if line.startswith("deployment ")} == {"made"}
        found = deployments(port)
        assert found["cifar-manual"] == "cpu"
        assert "tpu-stage" not in found  # no TPU is set

        said.clear()
        again = place_in(tmp_path).up("127.0.0.1", port, PROJECT, said.append)
        assert again == standing
        assert sum(line.endswith("as it was") for line in said) == len(found) + 3
        assert not [line for line in said if line.endswith(("made", "changed"))]
    finally:
        assert place_in(tmp_path).down(said.append)
    mark = str(tmp_path / ".podline" / "standing")
    assert not processes.marked(MARK, mark)
    assert not place_in(tmp_path).down(said.append)
