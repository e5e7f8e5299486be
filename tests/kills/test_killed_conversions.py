"""Conversions killed at random moments end with the same bytes: CIFAR and COCO, in a folder and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_commands import Case, World, killed
from raw_material import write_grey_cifar, write_people

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
SEED = 0


@pytest.mark.parametrize(
    ("dataset", "place", "kills"),
    [("cifar10", "folder", 40), ("cifar10", "bucket", 20), ("coco", "folder", 30), ("coco", "bucket", 15)],
)
def test_killed_conversion(tmp_path: Path, gcs: str, gcs_root: str, dataset: str, place: str, kills: int) -> None:
    source = (write_grey_cifar if dataset == "cifar10" else write_people)(tmp_path / "raw")
    sizes = {"shard_bytes": 65_000} if dataset == "cifar10" else {"shard_bytes": 30_000, "side": 64, "max_people": 8}
    spec = {"dataset": dataset, "source": str(source), "min_shards": 1, **sizes}
    case = Case(f"convert {dataset} {place}", ("convert", "--spec", "-"), spec, bucket=place == "bucket")
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []
