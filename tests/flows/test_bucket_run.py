"""``podline run sample`` with everything in a bucket gives, to the byte, what it gives in a folder; takes minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fault_proxy
import pytest

from podline.data.sources.sample import write_sample
from podline.storage import Store, open_store

pytestmark = pytest.mark.slow
# What says when, where and how long, and so is another each time.
_OF_THE_MOMENT = ("/stages/", ".jsonl", "tensorboard/", "/checkpoints/", "spec.json", "report.", "model.keras")


def run(tmp_path: Path, root: str, source: str, *options: str, **environment: str) -> dict[str, Any]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-m", "podline.cli", "run", "sample", "--root", root, "--source", source, "--json"]
    done = subprocess.run(
        [*command, "--steps", "120", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=ours | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bytes_in(store: Store) -> dict[str, str]:
    names = [name for name in store.list() if not any(part in name for part in _OF_THE_MOMENT)]
    return {name: store.sha256(name) for name in names if not name.startswith("sources/")}


def test_a_bucket_gives_what_a_folder_gives_also_through_a_bad_network(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    raw = write_sample(tmp_path / "raw", train=2000, test=400)
    sources = open_store(f"{gcs_root}raw data")
    for path in (file for file in raw.rglob("*") if file.is_file() and ".podline" not in file.parts):
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        sources.publish_file(copy, path.relative_to(raw).as_posix())

    here = run(tmp_path, str(tmp_path / "root"), str(raw))
    expected = bytes_in(open_store(tmp_path / "root"))
    assert any(name.endswith("weights.npz") for name in expected)
    assert any("tfrecord" in name for name in expected)

    root = f"{gcs_root}root/"
    with fault_proxy.fault_proxy(gcs) as proxy:
        proxy.share = 0.2
        there = run(tmp_path, root, sources.uri, STORAGE_EMULATOR_HOST=proxy.url)
        assert proxy.happened.total() > 10
    assert bytes_in(open_store(root)) == expected
    assert there["metrics"] == here["metrics"]
    assert there["report"].startswith(f"{root.rstrip('/')}/runs/")

    again = run(tmp_path, root, sources.uri)
    assert all(stage["reused"] for stage in again["stages"].values())
