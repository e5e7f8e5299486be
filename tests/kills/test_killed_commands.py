"""Commands killed at random moments end with the same bytes: conversions, trainings, evaluations and whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_images import as_folders, drawn, encoded, images
from killed_commands import Case, World, killed
from raw_cifar import write_easy_cifar

from podline.base.errors import PodlineError
from podline.base.progress import silent
from podline.data.people.sample import write_coco_sample
from podline.data.versions.validation import check_files, check_records
from podline.documents.manifest import read_manifest
from podline.documents.versions import versions
from podline.store.contract import Store

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
SEED = 0


@pytest.mark.parametrize(
    ("dataset", "place", "kills"),
    [("cifar10", "folder", 40), ("cifar10", "bucket", 20), ("coco", "folder", 30), ("coco", "bucket", 15)],
)
def test_killed_conversion(tmp_path: Path, gcs: str, gcs_root: str, dataset: str, place: str, kills: int) -> None:
    raw = tmp_path / "raw"
    if dataset == "cifar10":
        source, sizes = write_easy_cifar(raw, train=1200, test=300), {"shard_bytes": 65_000}
    else:
        source, sizes = write_coco_sample(raw, train=60, test=20), {"shard_bytes": 30_000, "side": 64, "max_people": 8}
    spec = {"dataset": dataset, "source": str(source), "min_shards": 1, **sizes}
    case = Case(f"convert {dataset} {place}", ("convert", "--spec", "-"), spec, bucket=place == "bucket")
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []


def newest_version_problems(store: Store) -> list[str]:
    """What is wrong with the newest version, whichever it is."""
    try:
        manifest = read_manifest(store, f"datasets/images/{versions(store, 'images')[-1].fingerprint}")
        check_files(store, manifest, silent())
        check_records(store, manifest.folder, manifest, silent())
    except PodlineError as error:
        return [f"the newest version after a kill: {error}"]
    return []


@pytest.mark.parametrize(("what", "kills"), [("convert", 30), ("compact", 20)])
def test_killed_versions(tmp_path: Path, gcs: str, gcs_root: str, what: str, kills: int) -> None:
    one, other = (as_folders(tmp_path / name, images(600)) for name in ("one", "other"))
    for number, path in enumerate(sorted(other.glob("*/*"))[::4]):
        path.write_bytes(encoded(drawn(10_000 + number)))
    settings = {"dataset": "images", "side": 16, "min_shards": 1, "shard_bytes": 20_000}
    command = ("convert", "--spec", "-")
    first, second = (Case(f"convert {name.name}", command, {"source": str(name), **settings}) for name in (one, other))
    if what == "convert":
        case = Case("convert on a base", command, second.spec, (first,), after_kill=newest_version_problems)
    else:
        compact = ("data", "compact", "images", "--dead-share", "0", "--root", "{root}")
        case = Case(what, compact, None, (first, second), after_kill=newest_version_problems)
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []


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
    source = write_easy_cifar(tmp_path / "raw", train=1200, test=300)
    spec = {"dataset": "cifar10", "source": str(source), "min_shards": 1, "shard_bytes": 300_000}
    convert = Case("convert", ("convert", "--spec", "-"), spec)
    train = Case("train", ("train", "cifar10", *RECIPE))
    before = (convert,) if stage == "train" else (convert, train)
    command = (stage, "cifar10", *(RECIPE if stage == "train" else ROOT))
    told = "none" if stage == "train" else "once"
    case = Case(f"{stage} {place}", command, before=before, bucket=place == "bucket", told=told)
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []


@pytest.mark.parametrize(("place", "kills"), [("folder", 100), ("bucket", 8)])
def test_killed_run(tmp_path: Path, gcs: str, gcs_root: str, place: str, kills: int) -> None:
    small = ("--steps", "100", "--batch-size", "32", "--set", "model.width=0.1", "--set", "deterministic=true")
    command = ("run", "sample", "--root", "{root}", *small, "--set", "checkpoint_steps=10")
    case = Case(f"run sample {place}", command, bucket=place == "bucket", told="each time")
    assert killed(World(tmp_path, case, gcs_root, gcs), kills, SEED) == []
