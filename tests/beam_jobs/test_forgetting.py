"""A forgotten image is gone from the next version at once, and from every byte of the store afterwards."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Answer
from converted_images import converted, images_spec
from drawn_images import as_folders, drawn, encoded, images
from killed_conversions import in_a_process, require_death
from PIL import Image
from small_dataset import small_recipe

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import silent
from podline.cli import cli
from podline.data.fitting import fitted
from podline.data.identity import identified
from podline.data.jpeg_files import encoded as jpeg
from podline.data.versions.fingerprint import find_converted
from podline.data.versions.record_names import RecordNames
from podline.data.versions.validation import check_files, check_records
from podline.documents.champions import Candidate, crown
from podline.documents.corrections import publish_forgotten
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.versions import versions
from podline.ledger.inventory.forgetting import Forgetting, forget
from podline.ledger.inventory.invalidation import forget as invalidate
from podline.ledger.inventory.traces import search
from podline.ledger.inventory.verification import verify
from podline.report.pictures import data_uri
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm, TrainingGroup
from podline.tasks.sources import look_at_source

SETTINGS = [{"near_share": 1, **each} for each in ({}, {"keep_jpeg": True})]


MINE = encoded(drawn(7_000))
EDITED = MINE[:33] + b"\0\0\0\6tEXtme\0you" + zlib.crc32(b"tEXtme\0you").to_bytes(4) + MINE[33:]
IDENTITY = identified(MINE).identity.hex()


def three_versions(tmp_path: Path, **settings: Any) -> tuple[Path, Path]:
    """A source and a store with three versions, of which the last two have an image in a shard of the second."""
    folder, root = as_folders(tmp_path / "raw", images(20)), tmp_path / "root"
    converted(root, folder, **settings)
    (folder / "cat" / "mine.png").write_bytes(MINE)
    (folder / "cat" / "other.png").write_bytes(encoded(drawn(7_001)))
    converted(root, folder, **settings)
    (folder / "cat" / "third.png").write_bytes(encoded(drawn(7_002)))
    converted(root, folder, **settings)
    assert [version.number for version in versions(open_store(str(root)), "images")] == [1, 2, 3]
    return folder, root


def holders(root: Path, of: bytes = MINE) -> list[str]:
    """The files below a folder, caches and temporary ones included, in which an image's file or pixels are."""
    square = fitted(np.asarray(Image.open(io.BytesIO(of))), (16, 16, 3), "letterbox")
    needles = (of, square.tobytes(), jpeg(square))
    files = [path for path in root.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(needle in path.read_bytes() for needle in needles)]


def forget_mine(root: Path) -> Forgetting:
    store = open_store(str(root))
    return forget(store, "images", IDENTITY, "asked by its owner", silent())


def forget_silently(root: str) -> None:
    forget_mine(Path(root))


@pytest.mark.parametrize(
    "settings", [pytest.param(SETTINGS[0], marks=pytest.mark.slow), *SETTINGS[1:]], ids=["pixels", "jpeg"]
)
def test_no_byte_of_a_forgotten_image_is_left(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder, root = in_a_process(three_versions, tmp_path, **settings)
    store, others = open_store(str(root)), holders(root, encoded(drawn(7_001)))
    assert len(holders(root)) >= 2, "a shard and a cache"
    assert others
    assert search(store, "images", folder / "cat" / "mine.png", silent()).found
    assert forget(store, "images", "cat/mine.png", "", silent(), dry_run=True).image == IDENTITY
    found = forget_mine(root)
    assert (found.version, len(found.removed)) == (4, 2)
    assert not holders(root)
    assert holders(root, encoded(drawn(7_001)))
    traces = search(store, "images", folder / "cat" / "mine.png", silent())
    assert not traces.found
    assert traces.objects > 5
    newest = versions(store, "images")[-1]
    manifest = read_manifest(store, f"datasets/images/{newest.fingerprint}")
    assert (newest.number, newest.removed) == (4, 1)
    assert len(names_of(store, manifest)) == manifest.written
    assert "cat/mine.png" not in names_of(store, manifest)
    left_out = {(left.record, left.reason) for left in manifest.quarantined}
    assert left_out == {(IDENTITY, "forgotten: asked by its owner")}
    check_files(store, manifest, silent())
    check_records(store, manifest.folder, manifest, silent())
    assert not verify(store, silent()).problems
    again = forget_mine(root)
    assert (again.version, again.removed) == (0, ())

    grown = in_a_process(converted, root, folder, **settings)
    at_once = in_a_process(converted, tmp_path / "once", folder, **settings)
    assert grown.written == at_once.written - 1 == manifest.written
    assert not any(sum(split.shards.lengths) for split in grown.splits)
    spec = images_spec(root, folder, **settings)
    assert find_converted(spec, silent()) is not None
    invalidate(spec)
    assert find_converted(spec, silent()) is None
    assert not holders(root)
    (folder / "cat" / "fourth.png").write_bytes(encoded(drawn(7_003)))
    (folder / "cat" / "mine.png").rename(folder / "Åse" / "mine.png")
    (folder / "Åse" / "edited.png").write_bytes(EDITED)
    publish_forgotten(store, "images.raw", IDENTITY, "mine.png", "asked by its owner")
    asked = ["--root", str(root), "--set", "conversion.side=16", "--set", "conversion.near_share=1"]
    assert "left out: 2 files: forgotten" in CliRunner().invoke(cli, ["data", "check", str(folder), *asked]).stdout
    group = TrainingGroup.model_validate({"assignments": ("conversion.side=16",)})
    look_at_source(TrainingForm(recipe="images", source=str(folder), training=group), str(root))
    assert not holders(root)
    assert in_a_process(converted, root, folder, **settings).written == grown.written + 1
    assert not holders(root)


def names_of(store: Store, manifest: Manifest) -> list[str]:
    names = RecordNames(store, manifest)
    return [name.decode() for split in manifest.splits for name in names.of_split(split.name)["name"].to_pylist()]


MOMENTS = (
    ("podline.ledger.inventory.forgetting:compact", 1),  # the document alone
    ("podline.data.versions.compaction:publish_shard", 2),
    ("podline.data.versions.publishing:publish_manifest", 1),
    ("podline.data.versions.compaction:publish_version", 1),
    ("podline.store.folder:FolderStore.delete", 1),
    ("podline.store.folder:FolderStore.delete", 4),  # shards of a version without a manifest
    ("podline.ledger.inventory.forgetting:cached_sources", 1),
    ("podline.ledger.inventory.forgetting:_delete_pages", 1),
)


def test_forgetting_that_dies_leaves_a_whole_version_and_goes_on(tmp_path: Path) -> None:
    _, root = in_a_process(three_versions, tmp_path, near_share=1)
    store = open_store(str(root))
    for function, call in MOMENTS:
        require_death(function, call, forget_silently, str(root))
        newest = versions(store, "images")[-1]
        manifest = read_manifest(store, f"datasets/images/{newest.fingerprint}")
        check_files(store, manifest, silent())
        check_records(store, manifest.folder, manifest, silent())
        assert newest.number in (3, 4)
    forget_mine(root)
    assert not holders(root)
    assert not verify(store, silent()).problems
    assert len(versions(store, "images")) == 4


def podline(*arguments: object) -> Answer:
    return CliRunner().invoke(cli, ["data", "forget", "images", *map(str, arguments)])


def test_the_command_names_runs_and_champions_deletes_their_pages_and_proves(tmp_path: Path) -> None:
    folder, root = in_a_process(three_versions, tmp_path, near_share=1)
    store, mine = open_store(str(root)), folder / "cat" / "mine.png"
    known = versions(store, "images")
    for number, version in enumerate(known):
        recipe = small_recipe().changed(dataset="images")
        spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=version.fingerprint, manifest_digest="0" * 64)
        store.publish_json(f"runs/images-{number}/spec.json", spec.model_dump(mode="json"))
        page = data_uri(fitted(np.asarray(Image.open(mine)), (16, 16, 3), "letterbox"))
        for report in ("report.html", "on-train/report.html"):
            store.publish_bytes(f"runs/images-{number}/{report}", f'<img src="{page}">'.encode())
    crown(store, "images", Candidate("images-2", "w" * 64, "images", known[-1].fingerprint), None, "promoted")
    (root / "sheets").mkdir()
    (root / "sheets" / "images.png").write_bytes(MINE)
    proof = podline("--prove", mine, "--root", root)
    assert isinstance(proof.exception, ArtifactError)
    assert "runs/images-0/report.html: a picture of it" in proof.output
    for wrong in (["cat/mine.png"], ["0" * 64, "--reason", "none"], ["cat/none.png", "--reason", "none"]):
        assert isinstance(podline("--root", root, "--key", *wrong).exception, SettingsError)
    there = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    dry = podline("--key", "cat/mine.png", "--dry-run", "--root", root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == there
    done = podline("--key", "cat/mine.png", "--reason", "asked", "--root", root)
    assert dry.output.splitlines()[2:] == done.output.splitlines()[1:]
    assert done.exit_code == 0, done.output
    for line in ("version: images@4", "run that may have seen it: images-2", "champion of: images"):
        assert line in done.output
    assert "seen it: images-0" not in done.output
    again = [line for line in done.output.splitlines() if "report images-1" in line]
    assert again == ["again: podline report images-1", "again: podline report images-1 --split train"]
    proof = podline("--prove", mine, "--root", root)
    assert proof.exit_code == 0, proof.output
    assert not holders(root)
    assert podline("--key", "cat/mine.png", "--reason", "asked", "--root", root).exit_code == 0
