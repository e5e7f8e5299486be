"""The set-up script takes the first Python that fits, replaces nothing of others, and names what is missing."""

from __future__ import annotations

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


def set_up(folder: Path, programs: dict[str, str], chosen: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script where only these programs are found, in a folder with a blank."""
    found = folder / "program ü"
    found.mkdir()
    (found / "rm").symlink_to(shutil.which("rm") or "")
    for name, body in programs.items():
        (found / name).write_text(f"#!{shutil.which('bash')}\n{body}\n")
        (found / name).chmod(0o755)
    return subprocess.run(
        [shutil.which("bash") or "", str(SCRIPT), str(folder / "venv"), "requirements.lock"],
        env={"PATH": str(found), "PYTHON": chosen and f"{found}/{chosen}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("programs", "chosen", "taken"),
    [
        ({"python3.11": FITS, "python3.12": FITS}, "", "python3.11"),
        ({"python3.11": FITS, "python3.12": FITS}, "python3.12", "python3.12"),
        ({"python3.11": NOT_CHOSEN, "python3.12": FITS, "python3": TOO_OLD}, "", "python3.12"),
        ({"python3.12": TOO_OLD, "python3": FITS}, "", "python3"),
    ],
)
def test_the_chosen_python_or_the_first_that_fits_is_taken(
    tmp_path: Path, programs: dict[str, str], chosen: str, taken: str
) -> None:
    done = set_up(tmp_path, programs, chosen)
    assert f"asked: {tmp_path}/program ü/{taken}\n" in done.stdout


def test_where_no_python_fits_one_line_names_the_versions_and_the_remedy(tmp_path: Path) -> None:
    done = set_up(tmp_path, {"python3.11": NOT_CHOSEN, "python3": TOO_OLD})
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


def test_a_folder_of_somebodys_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "photo.jpg").write_bytes(b"theirs")
    done = set_up(tmp_path, {"python3.11": FITS})
    assert (done.returncode, "no virtual environment" in done.stderr) == (1, True)
    assert (tmp_path / "venv" / "photo.jpg").read_bytes() == b"theirs"
