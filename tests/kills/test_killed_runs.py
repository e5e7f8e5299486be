"""Trainings, evaluations and whole runs killed at random moments end with the same bytes, in a folder and a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_commands import Case, World, killed, write_grey_cifar

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
SEED = 1
ROOT = ("--root", "{root}")
RECIPE = (
    *ROOT,
    *("--steps", "300", "--batch-size", "16", "--model", "linear", "--learning-rate", "0.01"),
    *("--set", "deterministic=true", "--set", "checkpoint_steps=5"),
)


@pytest.mark.parametrize(
    ("stage", "place", "kills"),
    [("train", "folder", 35), ("train", "bucket", 20), ("evaluate", "folder", 10), ("evaluate", "bucket", 5)],
)
def test_killed_stage(tmp_path: Path, gcs: str, gcs_root: str, stage: str, place: str, kills: int) -> None:
    source = write_grey_cifar(tmp_path / "raw")
    spec = {"dataset": "cifar10", "source": str(source), "min_shards": 1, "shard_bytes": 300_000}
    convert = Case("convert", ("convert", "--spec", "-"), spec)
    train = Case("train", ("train", "cifar10", *RECIPE))
    before = (convert,) if stage == "train" else (convert, train)
    command = (stage, "cifar10", *(RECIPE if stage == "train" else ROOT))
    case = Case(
        f"{stage} {place}",
        command,
        before=before,
        bucket=place == "bucket",
        told="none" if stage == "train" else "once",
    )
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []


@pytest.mark.parametrize(("place", "kills"), [("folder", 100), ("bucket", 8)])
def test_killed_run(tmp_path: Path, gcs: str, gcs_root: str, place: str, kills: int) -> None:
    small = ("--steps", "100", "--batch-size", "32", "--set", "model.width=0.1", "--set", "deterministic=true")
    command = ("run", "sample", "--root", "{root}", *small, "--set", "checkpoint_steps=10")
    case = Case(f"run sample {place}", command, bucket=place == "bucket", told="each time")
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []
