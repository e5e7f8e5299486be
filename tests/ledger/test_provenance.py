from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from podline.ledger import provenance
from podline.store import digests


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a package of the same name."""
    top = tmp_path / "checkout"
    (top / "podline").mkdir(parents=True)
    (top / "podline" / "__init__.py").write_text("")
    (top / "podline" / "loop.py").write_text("steps = 1\n")
    (top / ".gitignore").write_text("*.pyc\n")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "all")
    return top


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    (checkout / "podline" / "loop.pyc").write_text("compiled")
    (checkout / "data").mkdir()
    (checkout / "data" / "notes.py").write_text("no code of ours")
    found = provenance.code(checkout)
    assert found.commit == git(checkout, "rev-parse", "HEAD")
    assert (found.clean, found.changes, found.more_changes, found.sources) == (True, {}, 0, "")


def test_what_differs_from_the_commit_is_told_by_what_it_holds(checkout: Path) -> None:
    (checkout / "podline" / "loop.py").write_text("steps = 2\n")
    (checkout / "podline" / "new.py").write_text("new = 1\n")
    (checkout / ".gitignore").unlink()
    found = provenance.code(checkout)
    assert found.clean is False
    assert found.changes == {
        ".gitignore": "",
        "podline/loop.py": digests.of_bytes(b"steps = 2\n")[:12],
        "podline/new.py": digests.of_bytes(b"new = 1\n")[:12],
    }
    git(checkout, "add", ".")
    assert provenance.code(checkout) == found


def test_of_many_changes_the_first_are_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MOST_CHANGES", 2)
    for number in range(5):
        (checkout / "podline" / f"new{number}.py").write_text("")
    found = provenance.code(checkout)
    assert list(found.changes) == ["podline/new0.py", "podline/new1.py"]
    assert found.more_changes == 3


def test_a_package_below_somebody_elses_checkout_is_not_that_checkout(checkout: Path) -> None:
    installed = checkout / "venv" / "site-packages"
    (installed / "podline").mkdir(parents=True)
    (installed / "podline" / "__init__.py").write_text("version = 1\n")
    first = provenance.code(installed)
    assert (first.commit, first.clean) == ("", None)
    assert len(first.sources) == 64
    assert provenance.code(installed) == first
    (installed / "podline" / "__init__.py").write_text("version = 2\n")
    assert provenance.code(installed).sources != first.sources


def test_a_wheel_and_a_checkout_without_git_have_the_same_sources(tmp_path: Path) -> None:
    wheel, unpacked = tmp_path / "site-packages", tmp_path / "unpacked"
    for flows, top in ((wheel / "podline" / "flows", wheel), (unpacked / "flows", unpacked)):
        flows.mkdir(parents=True)
        (top / "podline").mkdir(exist_ok=True)
        (top / "podline" / "__init__.py").write_text("")
        (flows / "night.py").write_text("steps = 1\n")
    (unpacked / "podline" / "flows").symlink_to("../flows")
    first = provenance.code(wheel).sources
    assert first == provenance.code(unpacked).sources
    # Somebody else's package of the same name.
    (wheel / "tasks").mkdir()
    (wheel / "tasks" / "__init__.py").write_text("their = 1\n")
    assert provenance.code(wheel).sources == first
    (wheel / "podline" / "flows" / "night.py").write_text("steps = 2\n")
    assert provenance.code(wheel).sources != first


def test_without_git_the_sources_tell(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert provenance.code(checkout).sources


def test_the_environment_is_this_one() -> None:
    found = provenance.environment("cpu:2", "2 CPUs")
    assert (found.strategy, found.devices) == ("cpu:2", "2 CPUs")
    assert found.packages["numpy"][0].isdigit()
    assert "podline" not in found.packages
    assert list(found.packages) == sorted(found.packages)
    assert found.cores >= 1
    assert found.memory > 2**28
