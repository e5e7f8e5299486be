"""What changed between versions is told by their records; an unchanged source is known without opening it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from raw_cifar import convert_spec, converted_manifest, write_raw_cifar
from small_dataset import FINGERPRINT, drawn, publish_dataset, validation_of

from podline.base.errors import ArtifactError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.record_table import Records
from podline.data.versions.fingerprint import find_converted, fingerprint
from podline.data.versions.record_names import SourceFacts
from podline.data.versions.version_changes import (
    change_between,
    in_words,
    known_records,
    same_examples,
    version_changes,
)
from podline.documents.ledger_entry import Data
from podline.documents.manifest import MANIFEST, SourceFile
from podline.ledger.inventory.invalidation import forget
from podline.ledger.recording import data_of
from podline.stages.completed import complete
from podline.stages.specs import ConvertSpec, ValidateResult
from podline.store.opening import open_store


def listed(**splits: list[tuple[int, str]]) -> dict[str, Records]:
    """Splits of records, each as (image, target), numbered over all splits."""
    found, first = {}, 0
    for name, records in splits.items():
        keys = np.array([b"%d" % image for image, _ in records], "S16")
        targets = np.array([target.encode() for _, target in records], object)
        found[name] = Records.of(keys, keys, targets, first)
        first += len(records)
    return found


def told(before: dict[str, Records], after: dict[str, Records]) -> list[object]:
    added, removed, relabelled, moved = version_changes(before, after)
    pairs = ([list(map(int, pair)) for pair in zip(*both, strict=True)] for both in (relabelled, moved))
    return [added.tolist(), removed.tolist(), *pairs]


def test_what_came_went_changed_and_moved_is_told_whatever_the_order():
    before = listed(train=[(1, "a"), (2, "a"), (3, "b"), (4, "b")], test=[(9, "a")])
    after = listed(test=[(9, "a"), (2, "a")], train=[(4, "b"), (3, "c"), (1, "a"), (5, "a")])
    assert told(before, after) == [[5], [], [[2, 3]], [[1, 1]]]
    assert told(before, before) == [[], [], [], []]
    assert told(listed(), before) == [[0, 1, 2, 3, 4], [], [], []]


def test_a_record_that_is_there_twice_counts_twice():
    once, twice = listed(train=[(7, "b"), (8, "a")]), listed(train=[(7, "b"), (7, "b"), (8, "a")])
    assert told(once, twice) == [[1], [], [], []]
    assert told(twice, once) == [[], [1], [], []]
    # One of two equal images is given another class.
    assert told(twice, listed(train=[(7, "b"), (7, "c"), (8, "a")])) == [[], [], [[1, 1]], []]


def test_the_examples_that_two_splits_share_are_paired():
    before = listed(test=[(1, "a"), (2, "a"), (3, "b"), (2, "a")])["test"]
    after = listed(test=[(3, "b"), (2, "a"), (1, "z"), (2, "a"), (2, "a")])["test"]
    assert [found.tolist() for found in same_examples(before, after)] == [[2, 1, 3], [0, 1, 3]]


def data_in(folder: Path, fingerprint: str, changes: str) -> Data:
    """A data set of a store in which a training image or a test label may be other ones."""
    splits = {"train": drawn(30, 0), "test": drawn(20, 1)}
    splits["train"]["image"][7, 0, 0, 0] ^= "pixel" in changes
    splits["test"]["label"][3] = (splits["test"]["label"][3] + ("label" in changes)) % 3
    manifest = publish_dataset(folder, splits=splits).model_copy(update={"fingerprint": fingerprint})
    target = folder / "datasets" / "sample" / fingerprint
    (target.parent / FINGERPRINT).rename(target)
    (target / MANIFEST).write_bytes(manifest.to_bytes())
    return data_of(manifest)


def test_one_pixel_and_one_label_are_told_apart(tmp_path):
    first, pixel, both = (
        data_in(tmp_path, f"{number}" * 16, changes) for number, changes in enumerate(("", "pixel", "pixel, label"))
    )
    changed = change_between(open_store(tmp_path), first, pixel)
    assert {name: in_words(change) for name, change in changed.items()} == {
        "train": "1 added (train[7]); 1 removed (train[7])"
    }
    changed = change_between(open_store(tmp_path), pixel, both)
    assert list(changed) == ["test"]
    assert in_words(changed["test"]).startswith("1 relabelled (test[3] ")


def test_a_copy_of_the_table_of_validated_data_outlives_them(tmp_path):
    spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    manifest = converted_manifest(spec)
    store, folder = open_store(spec.root), f"datasets/cifar10/{manifest.fingerprint}"
    taken = known_records(store, "cifar10", manifest.fingerprint)["train"]
    assert store.list("ledger") == []
    validated = validation_of(spec.root, "cifar10", manifest.fingerprint)
    complete(store, folder, validated, ValidateResult(records=1, shards=1, duplicates_within=0), [])
    known_records(store, "cifar10", manifest.fingerprint)
    for name in store.list(folder):
        store.delete(name)
    kept = known_records(store, "cifar10", manifest.fingerprint)
    assert {name: len(kept[name].ids) for name in kept.splits} == {"train": 100, "test": 20}
    assert all((one == other).all() for one, other in zip(taken, kept["train"], strict=True))


def test_data_without_a_table_cannot_be_compared(tmp_path):
    manifest = publish_dataset(tmp_path).model_copy(update={"records": None})
    (tmp_path / manifest.folder / MANIFEST).write_bytes(manifest.to_bytes())
    with pytest.raises(ArtifactError, match="cannot be compared: it was converted by an older Podline; convert the"):
        known_records(open_store(tmp_path), "sample", manifest.fingerprint)


FILES = (SourceFile(name="a", bytes=3, sha256="0" * 64), SourceFile(name="b", bytes=4, sha256="1" * 64))


def spec_with(**settings: object):
    return convert_spec(Path("root"), Path("raw"), **settings)


def test_it_is_this_one() -> None:
    # A change here means that every data set is converted again: LAYOUT_VERSION is the place to say so.
    assert fingerprint(spec_with(), FILES) == "0dc24b309cad5e10"


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"workers": 4, "root": "elsewhere", "source": "elsewhere", "beam_options": ("--streaming",)}, True),
        *(({name: value}, False) for name, value in {"seed": 1, "shard_bytes": 65_001, "min_shards": 9}.items()),
        ({"dataset": "sample"}, False),
    ],
)
def test_settings_make_a_difference_but_for_where_and_how(settings: dict[str, object], same: bool) -> None:
    assert (fingerprint(spec_with(**settings), FILES) == fingerprint(spec_with(), FILES)) == same


def test_files_make_a_difference() -> None:
    changed = [FILES[1].model_copy(update=change) for change in ({"sha256": "2" * 64}, {"name": "c"}, {"bytes": 5})]
    for files in (*((FILES[0], other) for other in changed), FILES[:1], FILES[::-1]):
        assert fingerprint(spec_with(), files) != fingerprint(spec_with(), FILES)


@pytest.fixture(name="converted_spec")
def _converted_spec(tmp_path: Path) -> ConvertSpec:
    """A conversion that is done."""
    converted_spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    assert find_converted(converted_spec, silent()) is None
    assert convert(converted_spec, silent()).shards_written > 0
    return converted_spec


def opened_files(call: Callable[[], object], below: str) -> list[str]:
    """The files below a folder that a call opens."""
    opened: list[str] = []
    hooks = [lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None]
    sys.addaudithook(lambda event, arguments: hooks[0](event, arguments) if hooks else None)
    call()
    hooks.clear()
    return [path for path in opened if path.startswith(below)]


def test_an_unchanged_source_is_found_without_opening_a_file(converted_spec: ConvertSpec) -> None:
    found: list[object] = []
    assert opened_files(lambda: found.append(find_converted(converted_spec, silent())), converted_spec.source) == []
    assert found[0] is not None


def test_a_changed_source_is_opened_again(converted_spec: ConvertSpec) -> None:
    file = sorted(path for path in Path(converted_spec.source).rglob("*") if path.is_file())[0]
    for change in (
        lambda: file.write_bytes(file.read_bytes()),
        (file.parent / "new").touch,
        lambda: file.rename(file.with_name("other")).rename(file),
        lambda: forget(converted_spec),  # it is asked for again
    ):
        change()
        assert find_converted(converted_spec, silent()) is None
        assert convert(converted_spec, silent()).shards_written == 0, "its bytes are the same"
        assert find_converted(converted_spec, silent()) is not None


def test_formats_are_the_extensions_of_image_files_only() -> None:
    names = ["a/1.JPEG", "b.v2/2.png", "train.parquet[3]", "shards/0.tar/sample", "3", ""]
    assert SourceFacts(names, np.zeros(6, np.int64)).formats == [".jpg", ".png", "", "", "", ""]
