"""A conversion on a base, and a compaction, that die leave the last version or the next one, and end the same."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from drawn_images import as_folders, drawn, encoded, images
from killed_conversions import convert_silently, require_death
from raw_cifar import contents

from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.datasets.validation import check_files, check_records
from podline.documents.manifest import read_manifest
from podline.documents.versions import Version, versions
from podline.inventory.catalogue import choose_dataset
from podline.inventory.verification import verify
from podline.progress import silent
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

CONVERSION = (
    ("podline.data.shards:pixel_sums", 1),  # in the middle of a shard
    ("podline.beam_jobs.conversion:_publish", 1),  # all shards
    ("podline.beam_jobs.conversion:publish_manifest", 1),  # the table of records
    ("podline.beam_jobs.conversion:publish_version", 1),  # the manifest and the completion record
)
COMPACTION = (
    ("podline.datasets.compaction:write_shard", 2),
    ("podline.datasets.compaction:publish_manifest", 1),
    ("podline.datasets.compaction:publish_version", 1),
)


def spec_of(root: Path, source: Path) -> ConvertSpec:
    given = {"root": str(root), "dataset": "images", "source": str(source), "side": 16, "shard_bytes": 20_000}
    return ConvertSpec.model_validate(given)


def compact_newest(root: str) -> None:
    arguments = ["data", "compact", "images", "--dead-share", "0", "--root", root]
    assert CliRunner().invoke(cli, arguments).exit_code == 0


def newest(root: str) -> Version:
    """The newest version, which has to be whole."""
    store = open_store(root)
    version = versions(store, "images")[-1]
    manifest = read_manifest(store, f"datasets/images/{version.fingerprint}")
    check_files(store, manifest, silent())
    check_records(store, manifest.folder, manifest, silent())
    assert choose_dataset(store, "images", None, silent()).fingerprint == version.fingerprint
    return version


def test_a_version_in_the_making_dies_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    killed, undisturbed = (spec_of(tmp_path / name, folder) for name in ("killed", "undisturbed"))
    for spec in (killed, undisturbed):
        convert(spec, silent())
    for number, path in enumerate(sorted(folder.glob("*/*"))[::4]):
        path.write_bytes(encoded(drawn(1_000 + number)))
    for work, given, moments in (
        (convert_silently, lambda spec: spec, CONVERSION),
        (compact_newest, lambda spec: spec.root, COMPACTION),
    ):
        number = newest(killed.root).number
        for function, call in moments:
            require_death(function, call, work, given(killed))
            assert newest(killed.root).number == number
        for spec in (killed, undisturbed):
            work(given(spec))
        assert newest(killed.root) == newest(undisturbed.root)
        assert newest(killed.root).number == number + 1
        assert contents(killed) == contents(undisturbed)
        assert not verify(open_store(killed.root), silent()).problems
