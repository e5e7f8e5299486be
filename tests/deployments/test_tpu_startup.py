"""The start-up script of a TPU VM installs and starts a worker, once, and names in a line what is missing.

It runs into a temporary folder with real bash, curl and git; systemctl, pip, uv and Google's servers are played.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from http_answers import Request, answering

from podline.settings import machine as settings

SCRIPT = Path(__file__).resolve().parent.parent.parent / "deployments" / "tpu-startup.sh"
UNIT = "etc/systemd/system/podline-worker.service"
PASSWORD = "PREFECT_API_AUTH_STRING=admin:hush-hush"  # noqa: S105 (of no server)
# What each played command does besides noting what it was called with.
PLAYED = {
    "systemctl": "",
    "python3": 'while [ "$1" != --target ]; do shift; done; mkdir -p "$2/bin"; cp "$PLAYED/uv" "$2/bin/uv"',
    "uv": 'case "$1" in venv) for last; do :; done; lib="$last/lib/python3.11/site-packages/libtpu"; '
    'mkdir -p "$lib" "$last/bin"; touch "$lib/libtpu.so";; esac',
}


pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on PATH")


@dataclass
class Vm:
    """A machine below a folder, with what its metadata says."""

    folder: Path
    address: str
    attributes: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)

    def boot(self, expected: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'played'}{os.pathsep}{os.environ['PATH']}",
            "PLAYED": str(self.folder / "played"),
            "NOTES": str(self.notes),
            "PREFIX": str(self.folder),
            "METADATA": f"{self.address}/computeMetadata/v1",
            "SECRETS": f"{self.address}/v1",
            "STORAGE": f"{self.address}/storage/v1",
            "HOME": str(self.folder),
        }
        self.notes.unlink(missing_ok=True)
        done = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == expected, done.stderr
        return done

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def called(self, command: str) -> list[str]:
        """With what a command was called, the folder left out."""
        lines = self.notes.read_text().replace(str(self.folder), "").splitlines() if self.notes.exists() else []
        return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == command]


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    (tmp_path / "played").mkdir()
    for name, act in PLAYED.items():
        command = tmp_path / "played" / name
        command.write_text(f'#!/bin/bash\necho "{name} $*" >> "$NOTES"\n{act}\n')
        command.chmod(0o755)
    wheel = tmp_path / "podline-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    (tmp_path / "tpu.lock").write_bytes(b"a lock")
    attributes = {
        "podline-node": "night",
        "podline-project": "test-project",
        "podline-zone": "us-central2-b",
        "podline-install": str(wheel),
        "podline-prefect-url": "http://10.0.0.2:4200/api",
        "podline-prefect-secret": "prefect",
    }
    it = Vm(tmp_path, "", attributes, {"prefect": f"{PASSWORD}\n"})

    def answer(request: Request) -> tuple[int, bytes]:
        found = google(it, request)
        return (404, b"") if found is None else (200, found)

    with answering(answer) as it.address:
        yield it


def google(it: Vm, request: Request) -> bytes | None:
    """Answer for the metadata server, Secret Manager and the storage; None is 404."""
    path = request.path
    if path.startswith("/computeMetadata/v1/instance/"):
        assert request.headers["Metadata-Flavor"] == "Google"
        if path.endswith("/service-accounts/default/token"):
            return b'{"access_token":"a-token","expires_in":3599,"token_type":"Bearer"}'
        said = it.attributes.get(path.rpartition("/")[2])
        return None if said is None else said.encode()
    if request.headers["Authorization"] != "Bearer a-token":
        return None
    if path.startswith("/storage/v1/b/bucket/o/wheels%2F"):
        name = path.removeprefix("/storage/v1/b/bucket/o/wheels%2F").removesuffix("?alt=media")
        return (it.folder / name).read_bytes()
    name = path.removeprefix("/v1/projects/test-project/secrets/").removesuffix("/versions/latest:access")
    if name not in it.secrets:
        return None
    data = base64.b64encode(it.secrets[name].encode()).decode()
    return json.dumps({"name": name, "payload": {"data": data, "dataCrc32c": "1"}}, indent=2).encode()


def test_the_first_boot_installs_and_starts_the_second_changes_nothing_and_another_secret_restarts(vm: Vm) -> None:
    first = vm.boot()
    locked, itself = vm.called("uv")[1:]
    assert locked.endswith("--require-hashes -r /tpu.lock")
    assert itself.endswith("--no-deps /podline-0.1.0-py3-none-any.whl")
    assert vm.called("systemctl") == ["daemon-reload", "enable --quiet podline-worker", "restart podline-worker"]
    environment = vm.folder / "etc/podline/worker.env"
    assert environment.read_text() == f"PREFECT_API_URL=http://10.0.0.2:4200/api\n{PASSWORD}\n"
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    assert "hush" not in first.stdout + first.stderr + (vm.folder / "etc/podline/podline.toml").read_text()
    unit = (vm.folder / UNIT).read_text()
    assert "worker start --pool tpu --work-queue night --name night --type process --limit 1" in unit
    assert "hush" not in unit
    if shutil.which("systemd-analyze"):
        prefect = vm.folder / "opt/podline/venv/bin/prefect"
        prefect.write_text("#!/bin/sh\n")
        prefect.chmod(0o755)
        subprocess.run(["systemd-analyze", "verify", vm.folder / UNIT], check=True)
    tpu = settings.load(vm.folder / "etc/podline/podline.toml", {}).tpu
    assert tpu is not None
    assert (tpu.node, tpu.api.project, tpu.api.zone) == ("night", "test-project", "us-central2-b")
    assert tpu.machine is not None

    vm.boot()
    assert vm.called("uv") == []
    assert vm.called("systemctl")[-1] == "start podline-worker"

    vm.secrets["prefect"] = "PREFECT_API_AUTH_STRING=admin:other"
    vm.boot()
    assert vm.called("uv") == []
    assert vm.called("systemctl")[-1] == "restart podline-worker"
    assert "admin:other" in environment.read_text()


def test_a_git_reference_is_installed_by_its_lock_and_again_when_it_moves(vm: Vm, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", repository], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    vm.attributes["podline-install"] = f"git+file://{repository}@main"
    vm.boot()
    locked, itself = vm.called("uv")[1:]
    assert locked.endswith("--require-hashes -r /opt/podline/source/deployments/tpu.lock")
    assert itself.endswith("--no-deps /opt/podline/source")
    vm.boot()
    assert vm.called("uv") == []
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "two"], check=True)
    vm.boot()
    assert len(vm.called("uv")) == 3
    assert vm.called("systemctl")[-1] == "restart podline-worker"

    shutil.rmtree(repository)
    assert "the installed version is kept" in vm.boot().stdout
    assert vm.called("systemctl")[-1] == "start podline-worker"


def test_a_wheel_in_a_bucket_is_fetched_and_a_server_without_a_password_needs_no_secret(vm: Vm) -> None:
    vm.attributes["podline-install"] = "gs://bucket/wheels/podline-0.1.0-py3-none-any.whl"
    del vm.attributes["podline-prefect-secret"]
    vm.boot()
    assert (vm.folder / "opt/podline/podline-0.1.0-py3-none-any.whl").read_bytes() == b"a wheel"
    assert (vm.folder / "opt/podline/tpu.lock").read_bytes() == b"a lock"
    assert (vm.folder / "etc/podline/worker.env").read_text() == "PREFECT_API_URL=http://10.0.0.2:4200/api\n"


@pytest.mark.parametrize(
    ("attributes", "secret", "words"),
    [
        ({"podline-node": None}, PASSWORD, "the machine's metadata has no podline-node; see tpu.spec"),
        ({"podline-install": "podline"}, PASSWORD, "podline-install is podline; give git+URL@REF"),
        ({"podline-install": "LOCKLESS"}, PASSWORD, "no tpu.lock next to"),
        ({"podline-prefect-secret": "other"}, PASSWORD, "cannot read the secret other"),
        ({}, "hush-hush", "each of its lines must be PREFECT_"),
        ({}, f"{PASSWORD}\nrm -rf hush", "each of its lines must be PREFECT_"),
    ],
)
def test_what_is_missing_is_said_in_one_line_and_nothing_is_started(
    vm: Vm, attributes: dict[str, str | None], secret: str, words: str
) -> None:
    vm.secrets["prefect"] = secret
    lockless = vm.folder / "lockless" / "podline-0.1.0-py3-none-any.whl"
    lockless.parent.mkdir()
    lockless.touch()
    for name, value in attributes.items():
        vm.attributes[name] = str(value).replace("LOCKLESS", str(lockless))
        if value is None:
            del vm.attributes[name]
    done = vm.boot(expected=1)
    errors = [line for line in done.stderr.splitlines() if line.startswith("podline: error: ")]
    assert words in errors[0]
    assert "hush" not in done.stdout + done.stderr
    assert vm.called("systemctl") == []
