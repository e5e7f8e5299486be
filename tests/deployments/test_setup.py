"""The set-up script: which Python it takes, with programs of the usual names in a folder that alone is searched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
SCRIPT = PROJECT / "deployments" / "setup.sh"
# As pyenv's shim of a version that is installed and not chosen.
NOT_CHOSEN = "echo 'pyenv: command not found' >&2; exit 127"
TOO_OLD = "exit 1"
# Passes the script's questions, and says so when it is asked for an environment.
FITS = f'case "$*" in *-m\\ venv*) echo "asked: $0"; exit 1;; *) exec {sys.executable} "$@";; esac'


def set_up(folder: Path, chosen: str = "", **programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only these programs are found; each name is that of a Python without its dot."""
    found = folder / "bin"
    found.mkdir()
    (found / "rm").symlink_to(shutil.which("rm") or "")
    for name, body in programs.items():
        program = found / re.sub(r"^python3(\d+)$", r"python3.\1", name)
        program.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        program.chmod(0o755)
    return subprocess.run(
        [shutil.which("bash") or "", str(SCRIPT), str(folder / "venv"), "requirements.lock"],
        env={"PATH": str(found), "PYTHON": chosen},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("programs", "taken"),
    [
        ({"python311": FITS, "python312": FITS}, "python3.11"),
        ({"python311": NOT_CHOSEN, "python312": FITS, "python3": TOO_OLD}, "python3.12"),
        ({"python312": TOO_OLD, "python3": FITS}, "python3"),
    ],
)
def test_the_first_python_that_fits_is_taken(tmp_path: Path, programs: dict[str, str], taken: str) -> None:
    done = set_up(tmp_path, **programs)
    assert f"asked: {tmp_path}/bin/{taken}\n" in done.stdout


def test_where_no_python_fits_one_line_names_the_versions_and_the_remedy(tmp_path: Path) -> None:
    done = set_up(tmp_path, python311=NOT_CHOSEN, python3=TOO_OLD)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert all(word in line for word in ("3.11", "3.12", "3.13", "PYTHON=", "venv"))
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("script", "made"), [("#!/gone/python3\n", True), ("exit 1", True), ("exit 0", False)])
def test_make_makes_an_environment_that_no_longer_runs_anew(tmp_path: Path, script: str, made: bool) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "deployments/setup.sh", ".venv/bin/podline"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "Makefile").write_text((PROJECT / "Makefile").read_text())
    (tmp_path / ".venv/bin/podline").write_text(script)
    (tmp_path / ".venv/bin/podline").chmod(0o755)
    (tmp_path / ".venv/.ready").touch()
    command = ["make", "-n", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert ("deployments/setup.sh" in done.stdout) == made


def versions(lock: Path) -> set[str]:
    return set(re.findall(r"^[a-z0-9_.-]+==[^ ]+", lock.read_text(), re.MULTILINE))


def test_the_gpu_lock_adds_nvidia_s_libraries_and_nothing_else() -> None:
    cpu, gpu = versions(PROJECT / "deployments" / "cpu.lock"), versions(PROJECT / "deployments" / "gpu.lock")
    assert cpu < gpu
    assert {package.partition("-")[0] for package in gpu - cpu} == {"nvidia"}
    # What tests run with is what a GPU's machine runs with.
    assert cpu <= versions(PROJECT / "requirements.lock")


def test_a_folder_of_somebodys_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "photo.jpg").write_bytes(b"theirs")
    done = set_up(tmp_path, python311=FITS)
    assert (done.returncode, "no virtual environment" in done.stderr) == (1, True)
    assert (tmp_path / "venv" / "photo.jpg").read_bytes() == b"theirs"


def test_the_path_of_the_chosen_python_may_have_blanks(tmp_path: Path) -> None:
    chosen = tmp_path / "ein Python ü"
    chosen.write_text(f"#!{shutil.which('bash')}\n{FITS}\n")
    chosen.chmod(0o755)
    assert f"asked: {chosen}" in set_up(tmp_path, str(chosen)).stdout
