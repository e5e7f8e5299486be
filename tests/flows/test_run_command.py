"""``podline run sample`` as a newcomer types it, and a second time; with real training, so it takes minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ALL = ["convert", "validate", "train", "evaluate", "report"]


def run(folder: Path, *words: str) -> dict[str, Any]:
    """The answer of one run, in an empty home."""
    (folder / "home").mkdir(exist_ok=True)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PODLINE_", "XDG_"))}
    command = "-m podline.cli run sample --root root --steps 120 --json"
    done = subprocess.run(
        [sys.executable, *command.split(), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**ours, "HOME": str(folder / "home")},
    )
    assert done.returncode == 0, done.stderr
    assert "✓" in done.stderr
    return json.loads(done.stdout)


def reused(answer: dict[str, Any]) -> list[str]:
    return [name for name, stage in answer["stages"].items() if stage["reused"]]


def test_a_newcomer_gets_a_report_and_the_second_time_at_once(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert reused(first) == []
    assert list(first["stages"]) == ALL
    assert all(stage["seconds"] > 0 for stage in first["stages"].values())
    accuracy = first["metrics"]["top1"]
    assert first["untrained_top1"] < accuracy["low"] < accuracy["value"] < accuracy["high"]
    page = Path(first["report"])
    assert page.is_relative_to(tmp_path / "root")
    whole = page.read_text()
    assert "<html" in whole

    second = run(tmp_path)
    assert reused(second) == ALL
    assert sum(stage["seconds"] for stage in second["stages"].values()) < 0.2 * sum(
        stage["seconds"] for stage in first["stages"].values()
    )
    assert {key: second[key] for key in ("run", "metrics", "report")} == {
        key: first[key] for key in ("run", "metrics", "report")
    }

    page.write_text(whole[:-1])
    assert reused(run(tmp_path)) == ["convert", "validate", "train", "evaluate"]
    assert page.read_text().startswith(whole[:100])
    assert list((tmp_path / "home").rglob("*")) == []
