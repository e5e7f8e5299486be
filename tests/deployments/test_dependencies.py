"""Versions of dependencies that broke users are refused, and the locks have none that pyproject.toml refuses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parent.parent.parent
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [Requirement(text) for text in DECLARED["dependencies"]]
EXTRAS = [Requirement(text) for texts in DECLARED["optional-dependencies"].values() for text in texts]
LOCKS = {name: PROJECT / "deployments" / f"{name}.lock" for name in ("cpu", "gpu", "tpu")}
LOCKS["tests"] = PROJECT / "requirements.lock"


@pytest.mark.parametrize(
    ("package", "version", "_what_happened"),
    [
        ("libtpu", "0.0.32", "tensorflow-tpu 2.20 aborts at import: a symbol is not available in this library"),
        ("numpy", "2.1.3", "savez(allow_pickle=False) writes an array of that name: weights of another model"),
        ("pydantic", "2.11.10", "Field has no exclude_if"),
        ("sqlalchemy", "2.0.10", "Prefect's server: no module sqlalchemy.dialects.postgresql.operators"),
        ("sqlalchemy", "2.1.0", "a second flow run in a process takes 9 s"),
        ("whenever", "0.10.5", "every cron schedule fails on Python 3.11: tzinfo must be of type ZoneInfo"),
        ("keras", "3.14.0", "private parts differ"),
        ("keras", "3.16.0", "private parts may differ"),
        ("prefect", "3.10.0", "private parts may differ"),
        ("starlette", "2.0.0", "routes of an application may differ"),
        ("uvicorn", "1.0.0", "the start of a server may differ"),
    ],
)
def test_a_version_that_breaks_podline_is_refused(package: str, version: str, _what_happened: str) -> None:
    asked = [one for one in [*REQUIREMENTS, *EXTRAS] if canonicalize_name(one.name) == package]
    assert asked, f"{package} is not declared"
    assert not any(one.specifier.contains(version) for one in asked)


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!-]+)", LOCKS[lock].read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_every_dependency_in_a_version_that_is_declared(lock: str) -> None:
    pinned = versions(lock)
    outside = {
        one.name: (pinned.get(canonicalize_name(one.name)), str(one.specifier))
        for one in REQUIREMENTS
        if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))
    }
    assert not outside
    build = "tensorflow-tpu" if lock == "tpu" else "tensorflow"
    others = [one for one in EXTRAS if one.name in pinned and one.name != build]
    assert not [one.name for one in others if not one.specifier.contains(pinned[one.name])]
    assert build in pinned
    # No tool of development is in an image.
    tools = {"pytest", "hypothesis", "playwright", "ruff", "pyright", "tensorflow-datasets"} & pinned.keys()
    assert bool(tools) == (lock == "tests")


def test_machines_have_the_versions_that_tests_run_with() -> None:
    cpu, gpu = versions("cpu").items(), versions("gpu").items()
    assert cpu < gpu
    assert {package.partition("-")[0] for package, _ in gpu - cpu} == {"nvidia"}
    assert cpu <= versions("tests").items()
    # Workers of Beam and Dask start from these releases.
    assert "dask" in versions("cpu")
    image = (PROJECT / "deployments" / "containers" / "Containerfile").read_text()
    assert f"beam_python3.11_sdk:{versions('cpu')['apache-beam']} " in image
