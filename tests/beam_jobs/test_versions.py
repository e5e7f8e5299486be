"""A data set of one's own images that grew is one that was converted at once, also where conversions were killed."""

from __future__ import annotations

import io
import json
import random
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner
from converted_images import images_spec
from drawn_images import CLASSES, as_folders, drawn, encoded, images
from killed_conversions import convert_silently, require_death
from PIL import Image
from raw_cifar import contents
from small_dataset import small_recipe

from podline.base.errors import ArtifactError, SourceError, StoreError, StoreUnavailableError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.data import record_table
from podline.data.identity import identified
from podline.data.images import deciding
from podline.data.reader import open_split
from podline.data.record_table import RECORDS, RecordTable
from podline.data.versions import growth, other_data
from podline.data.versions.compaction import compact
from podline.data.versions.fingerprint import find_converted
from podline.data.versions.record_names import RecordNames, identities
from podline.data.versions.validation import check_files, check_records
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest, dead_share, read_manifest
from podline.documents.versions import Version, publish_version, version_of, versions
from podline.ledger.inventory.catalogue import choose_dataset
from podline.ledger.inventory.inventory import holdings, needless
from podline.ledger.inventory.verification import verify
from podline.notebook import open_dataset
from podline.recipes.durations import Duration
from podline.stages.specs import ConvertResult, TrainSpec
from podline.store.opening import open_store
from podline.training.train import train

pytestmark = pytest.mark.usefixtures("parsed_here")


def converted(root: Path, source: Path, **settings: Any) -> tuple[ConvertResult, Manifest]:
    result = convert(images_spec(root, source, **settings), silent())
    return result, read_manifest(open_store(str(root)), result.folder)


def table_of(root: Path, manifest: Manifest) -> RecordTable:
    return RecordTable(root / manifest.folder / RECORDS)


def require_equal(grown: Path, one: Manifest, once: Path, other: Manifest) -> None:
    """Both manifests have the same records in the same order, the same statistics and the same table of these."""
    both = ((grown, one), (once, other))
    for ours, theirs in zip(one.splits, other.splits, strict=True):
        for name in ("name", "records", "class_counts", "mean", "std", "content"):
            assert getattr(ours, name) == getattr(theirs, name), (ours.name, name)
        readers = [open_split(open_store(str(root)), it.folder, it, ours.name) for root, it in both]
        found, expected = (reader.gather(np.arange(len(reader))) for reader in readers)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
        rows = [table_of(root, it).of_split(ours.name, "key", "digest") for root, it in both]
        assert rows[0].equals(rows[1])
        names = [RecordNames(open_store(str(root)), it).of_split(ours.name) for root, it in both]
        assert names[0].equals(names[1])
        assert len(names[0]) == ours.records
    assert table_of(grown, one).pixels == table_of(once, other).pixels
    check_files(open_store(str(grown)), one, silent())
    check_records(open_store(str(grown)), one.folder, one, silent())


def changed(folder: Path, night: int) -> None:
    chance = random.Random(night)
    for change in (remove, relabel, add):
        change(folder, folder, night, chance)
    sorted(folder.glob("*/*"))[4].write_bytes(encoded(drawn(2_000 + night)))


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 100))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_history_is_one_conversion_of_its_end_and_tests_on_no_image_that_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, rows in (("_AT_ONCE", 7), ("_ROW_GROUP", 23)):  # a table is read and written some rows at a time
        monkeypatch.setattr(record_table, name, rows)
    folder, grown, once = as_folders(tmp_path / "raw", images()), tmp_path / "grown", tmp_path / "once"
    chance, before = random.Random(seed), as_folders(tmp_path / "before", images())
    settings = {"test_share": 0.2, "keep_jpeg": seed % 2 == 0, "allow_left_out": 1, "near_share": 1}
    _, manifest = converted(grown, folder, **settings)
    trained, kept = images_of(grown, manifest, "train"), 0
    for night in range(chance.randint(2, 5)):
        for change in chance.sample(CHANGES, chance.randint(1, 4)):
            change(folder, before, night, chance)
        if chance.random() < 0.2:
            compact(open_store(str(grown)), manifest, 0, silent())
        _, manifest = converted(grown, folder, **settings)
        assert not trained & images_of(grown, manifest, "test")
        trained |= images_of(grown, manifest, "train")
        kept += bool(manifest.base)
    _, at_once = converted(once, folder, **settings)
    assert manifest.written > 40
    assert kept
    require_equal(grown, manifest, once, at_once)
    if seed == 0:
        assert weights_of(grown, manifest) == weights_of(once, at_once)


def images_of(root: Path, manifest: Manifest, split: str) -> set[str]:
    return {*identities(open_store(str(root)), manifest, split, range(manifest.split(split).records))}


def some(folder: Path, chance: random.Random, most: int = 3) -> list[Path]:
    """Some files, of which each class keeps enough."""
    files = chance.sample(sorted(folder.glob("*/*")), chance.randint(1, most))
    return [file for file in files if len(list(file.parent.iterdir())) > 8]


def add(folder: Path, _before: Path, night: int, chance: random.Random) -> None:
    for number in range(chance.randint(1, 6)):
        file = folder / chance.choice(CLASSES) / f"n{night}-{number}.png"
        file.write_bytes(encoded(drawn(1_000 + 10 * night + number)))


def remove(folder: Path, _before: Path, _night: int, chance: random.Random) -> None:
    for file in some(folder, chance):
        file.unlink()


def rename(folder: Path, _before: Path, night: int, chance: random.Random) -> None:
    for file in some(folder, chance):
        file.rename(file.with_stem(f"r{night}-{file.stem}"))


def relabel(folder: Path, _before: Path, _night: int, chance: random.Random) -> None:
    for file in some(folder, chance):
        file.rename(folder / chance.choice([name for name in CLASSES if name != file.parent.name]) / file.name)


def replace(folder: Path, _before: Path, night: int, chance: random.Random) -> None:
    for number, file in enumerate(some(folder, chance)):
        file.write_bytes(encoded(drawn(2_000 + 10 * night + number)))


def edit_metadata(folder: Path, _before: Path, night: int, chance: random.Random) -> None:
    for file in some(folder, chance, 12):
        data = file.read_bytes()
        if data.startswith(b"\xff\xd8"):
            file.write_bytes(data[:2] + b"\xff\xfe\0\3%c" % night + data[2:])
        elif data.startswith(b"\x89PNG"):
            text = b"tEXtnight\0%c" % night
            file.write_bytes(data[:33] + (len(text) - 4).to_bytes(4) + text + zlib.crc32(text).to_bytes(4) + data[33:])


def restore(folder: Path, before: Path, _night: int, chance: random.Random) -> None:
    """Bring back files of the first night, also changed ones; a relabelled image then has two classes."""
    for file in chance.sample(sorted(before.glob("*/*")), 8):
        (folder / file.relative_to(before)).write_bytes(file.read_bytes())


CHANGES = (add, remove, rename, relabel, replace, edit_metadata, restore)


def weights_of(root: Path, manifest: Manifest) -> str:
    recipe = small_recipe(deterministic=True, duration=Duration(steps=5)).model_copy(update={"dataset": "images"})
    spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=manifest.fingerprint, preflight=False)
    return train(spec, silent()).weights_sha256


def test_a_return_to_an_earlier_content_is_a_version_and_a_removal_alone_writes_no_shard(tmp_path: Path) -> None:
    folder, root = as_folders(tmp_path / "raw", images()), tmp_path / "root"
    first, whole = converted(root, folder)
    data = (folder / "cat" / "000.png").read_bytes()
    (folder / "cat" / "000.png").unlink()
    second, fewer = converted(root, folder)
    assert (second.shards_written, sum(len(split.shards) for split in fewer.splits)) == (0, 0)
    assert fewer.written == whole.written - 1
    (folder / "cat" / "000.png").write_bytes(data)
    third, again = converted(root, folder)
    assert (third.fingerprint, again.to_bytes()) == (first.fingerprint, whole.to_bytes())
    known = versions(open_store(str(root)), "images")
    assert [(each.fingerprint, each.base, each.added, each.removed) for each in known] == [
        (first.fingerprint, "", whole.written, 0),
        (second.fingerprint, first.fingerprint, 0, 1),
        (first.fingerprint, second.fingerprint, 1, 0),
    ]


def test_a_source_whose_older_files_come_back_is_converted_again_and_one_with_other_settings_is_not(
    tmp_path: Path,
) -> None:
    both, root = (as_folders(tmp_path / name, images()) for name in "ab"), tmp_path / "root"
    one, other = both
    (other / "cat" / "000.png").unlink()
    for source in (one, other):
        converted(root, source)
    assert find_converted(images_spec(root, other), silent()) is not None
    assert find_converted(images_spec(root, one), silent()) is None  # it is no longer the newest version
    converted(root, one)
    assert not converted(root, other, side=24)[1].base
    assert find_converted(images_spec(root, one), silent()) is not None
    as_folders(one, {"new": {f"{number}.png": encoded(drawn(3_000 + number)) for number in range(4)}})
    assert not converted(root, one)[1].base, "a class more"


def test_other_data_of_the_same_name_are_refused_and_moved_or_renewed_data_are_not(tmp_path: Path) -> None:
    def made(name: str, first: int, *classes: str) -> Path:
        return as_folders(
            tmp_path / name / "data",
            {
                kind: {f"{at}.png": encoded(drawn(first + at)) for at in range(n, 30, 3)}
                for n, kind in enumerate(classes)
            },
        )

    root, base = tmp_path / "root", "images.data"
    converted(root, made("old", 0, "bee", "wasp", "other"), dataset=base)
    converted(root, made("renamed", 0, "Biene", "Wespe", "Rest"), dataset=base)
    converted(root, made("renewed", 100, "Biene", "Hummel", "Rest"), dataset=base)
    words = (
        r"data set images.data has the classes 'Biene', 'Hummel', 'Rest', but this source, without any of its images, "
        r"has the classes 'Rest', 'oak', 'pine'; .* \(--name NAME, or the recipe images.NAME\)"
    )
    with pytest.raises(SourceError, match=words):
        converted(root, made("trees", 200, "oak", "pine", "Rest"), dataset=base)
    converted(root, tmp_path / "trees" / "data", dataset="images.trees")
    assert [len(versions(open_store(str(root)), name)) for name in (base, "images.trees")] == [3, 1]


@pytest.mark.parametrize("module", [growth, other_data])
def test_an_outage_is_not_taken_for_a_store_without_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    root, folder = tmp_path / "root", as_folders(tmp_path / "raw", images())
    _, first = converted(root, folder)
    changed(folder, 1)
    with monkeypatch.context() as outage:
        outage.setattr(module, "read_manifest", Mock(side_effect=StoreUnavailableError("no answer")))
        with pytest.raises(StoreUnavailableError, match="no answer"):
            converted(root, folder)
    assert converted(root, folder)[1].base == first.fingerprint


def test_a_version_is_published_once_and_has_a_number(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "root"))
    ours, theirs = (Version(number=0, fingerprint=16 * name, content=16 * name) for name in "ab")
    assert [publish_version(store, "images", each).number for each in (theirs, ours, ours)] == [1, 2, 2]
    assert version_of(store, "images", "1").fingerprint == theirs.fingerprint
    with pytest.raises(StoreError, match="has no version 3, expected 1 to 2"):
        version_of(store, "images", "3")


def test_versions_are_listed_chosen_verified_and_kept(tmp_path: Path) -> None:
    folder, root = as_folders(tmp_path / "raw", images()), tmp_path / "root"
    found = [converted(root, folder)[0].fingerprint]
    for night in range(2):
        changed(folder, night)
        found.append(converted(root, folder)[0].fingerprint)
    at = ["--root", str(root)]
    listed = CliRunner().invoke(cli, ["data", "list", "images", *at])
    assert [line.split()[:2] for line in listed.output.splitlines()] == [
        [f"@{number}", known] for number, known in enumerate(found, start=1)
    ]
    assert " removed, " in listed.output
    shown = CliRunner().invoke(cli, ["data", "show", "images@2", "--json", *at])
    assert json.loads(shown.output)["fingerprint"] == found[1]
    store = open_store(str(root))
    assert not verify(store, silent()).problems
    assert not needless(holdings(store), store.now() + 1)  # the newest version has shards of all of them
    as_folders(folder, {"cat": {"late.png": encoded(drawn(9_000))}})
    converted(root, folder, side=24)
    assert [holding.name.split("/")[2] for holding in needless(holdings(store), store.now() + 1)] == sorted(found)


def test_grey_jpeg_files_in_records_are_read_as_the_conversion_saw_them(tmp_path: Path) -> None:
    folder, settings = as_folders(tmp_path / "raw", images()), {"side": 48, "channels": 1, "test_share": 0.3}
    plain, kept = (converted(tmp_path / "root", folder, keep_jpeg=keep, **settings)[1] for keep in (False, True))
    assert (kept.fingerprint != plain.fingerprint, kept.field("image").encoding) == (True, "file")
    store = open_store(str(tmp_path / "root"))
    readers = [open_split(store, it.folder, it, "train") for it in (plain, kept)]
    expected, found = (reader.gather(np.arange(len(reader))) for reader in readers)
    np.testing.assert_array_equal(found["label"], expected["label"])
    assert 0 < np.abs(found["image"].astype(int) - expected["image"]).mean() < 8
    sizes = [sum(shard.bytes for shard in it.split("train").shards) for it in (kept, plain)]
    assert sizes[0] < sizes[1] / 2
    assert check_records(store, kept.folder, kept, silent()) == 0


def test_images_that_become_equal_only_as_jpeg_files_may_be_in_two_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(blue: int) -> bytes:
        stream = io.BytesIO()
        Image.new("RGB", (16, 16), (100, 100, blue)).save(stream, "PNG")
        return stream.getvalue()

    raw, store = tmp_path / "raw", open_store(str(tmp_path / "root"))
    as_folders(raw / "train", images() | {"plain": {f"{blue}.png": plain(blue) for blue in (0, 100)}})
    as_folders(raw / "test", {"plain": {"1.png": plain(101), "2.png": plain(200)}})
    manifest = converted(store.uri, raw, keep_jpeg=True)[1]
    assert check_records(store, manifest.folder, manifest, silent()) == 0
    monkeypatch.setattr(deciding, "_leave_out_shared", lambda *_arguments, **_options: None)
    (raw / "test" / "plain" / "1.png").write_bytes(plain(100))
    manifest = converted(store.uri, raw, keep_jpeg=True)[1]
    for _ in range(2):
        with pytest.raises(ArtifactError, match="the same image is in two splits"):
            check_records(store, manifest.folder, manifest, silent())
        monkeypatch.setattr(RecordTable, "of", Mock(side_effect=ArtifactError("an older Podline wrote it")))


def test_a_compacted_version_has_its_records_alone_and_is_gone_on_from(tmp_path: Path) -> None:
    folder, root = as_folders(tmp_path / "raw", images()), tmp_path / "root"
    store, settings = open_store(str(root)), {"keep_jpeg": True}
    converted(root, folder, **settings)
    changed(folder, 1)
    _, grown = converted(root, folder, **settings)
    assert compact(store, grown, 0.5, silent()) is None
    record = completion_name(grown.folder, "convert")
    content, there = store.read_bytes(record), store.folders("datasets/images")
    store.delete(record)
    with pytest.raises(StoreError, match="convert"):
        compact(store, grown, 0.01, silent())
    assert store.folders("datasets/images") == there
    store.publish_bytes(record, content)
    version = compact(store, grown, 0.01, silent())
    assert (version.number, version.content) == (3, grown.fingerprint)
    compacted = read_manifest(store, f"datasets/images/{version.fingerprint}")
    assert (compacted.base, dead_share(compacted)) == ("", 0)
    _, once = converted(tmp_path / "once", folder, **settings)
    require_equal(root, compacted, tmp_path / "once", once)
    assert find_converted(images_spec(root, folder, **settings), silent()).fingerprint == version.fingerprint
    changed(folder, 2)
    assert converted(root, folder, **settings)[1].base == version.fingerprint
    assert not verify(store, silent()).problems


def test_records_are_found_by_name_also_after_a_file_was_renamed(tmp_path: Path) -> None:
    folder, root = as_folders(tmp_path / "raw", images()), tmp_path / "root"
    converted(root, folder)
    file = (folder / "cat" / "000.png").rename(folder / "cat" / "é\udcff.png")
    _, manifest = converted(root, folder)
    assert [version.number for version in versions(open_store(str(root)), "images")] == [1]
    for split in manifest.splits:
        examples = open_dataset("images", str(root), split=split.name)
        keys = identities(open_store(str(root)), manifest, split.name, range(split.records))
        for name, key in zip(examples.names(slice(None)), keys, strict=True):
            path = file if name.startswith("cat/é") else folder / name
            assert identified(path.read_bytes()).identity.hex() == key
    [said] = shown(root, "cat/é\udcff.png")
    assert said["image"] == identified(file.read_bytes()).identity.hex()
    assert said["name"] == open_dataset("images", str(root), split=said["split"]).names(said["record"])
    assert shown(root, f"{said['split']}[{said['record']}]") == [said]
    assert "expected a position such as train[0]" in str(asked(root, "cat/000.png").exception)
    needless = CliRunner().invoke(cli, ["data", "compact", "images", "--dead-share", "0", "--root", str(root)])
    assert needless.stdout == "nothing to do: the version uses no shards of older versions\n"


def asked(root: Path, record: str) -> Any:
    return CliRunner().invoke(cli, ["data", "show", "images", "--record", record, "--root", str(root), "--json"])


def shown(root: Path, record: str) -> Any:
    return json.loads(asked(root, record).stdout)


CONVERSION = (
    ("podline.data.shards:pixel_sums", 1),  # in the middle of a shard
    ("podline.data.versions.publishing:publish_manifest", 1),  # all shards, and the table of records
    ("podline.data.versions.publishing:publish_version", 1),  # the manifest and the completion record
)
COMPACTION = (
    ("podline.data.versions.compaction:publish_shard", 2),
    ("podline.data.versions.compaction:publish_version", 1),
)


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
    killed, undisturbed = (images_spec(tmp_path / name, folder) for name in ("killed", "undisturbed"))
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


def test_a_set_that_grows_each_night_stays_flat_in_shards_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podline.documents.manifest._FURTHER_SHARDS", 4)
    folder, root, once = as_folders(tmp_path / "raw", images()), tmp_path / "root", tmp_path / "once"
    store, settings, shards, wholes = open_store(str(root)), {"min_shards": 1, "shard_bytes": 100_000}, list[int](), 0
    for night in range(14):
        as_folders(folder, {"cat": {f"n{night}.png": encoded(drawn(7_000 + night))}})
        _, manifest = converted(root, folder, **settings)
        shards.append(sum(len(split.every_shard) for split in manifest.splits))
        for unused in needless(holdings(store), store.now() + 1):
            unused.remove()
        if not manifest.base:
            wholes += 1
            require_equal(root, manifest, once, converted(once, folder, **settings)[1])
            assert store.exists(f"{manifest.folder}/features.json"), "TFDS opens it"
            assert store.folders("datasets/images") == [manifest.folder]
    assert (wholes, max(shards), shards[-1] < max(shards)) == (2, 9, True), shards
    assert not compact(store, manifest, 0.01, silent())
    assert compact(store, manifest, 0, silent())
    known = versions(store, "images")
    assert [each.added for each in known[1:-1]] == [1] * 13
    assert not verify(store, silent()).problems
