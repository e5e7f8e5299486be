"""A finished store is damaged in one place after another; each time a user is told, by the file's name."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from damages import FILES, Damage, damages, harmless, hear, judged, kind_of, names
from empty_charts import empty_charts
from finished_store import Finished, finished_store
from small_coco import publish_people
from small_dataset import publish_dataset

from podline.base.errors import ArtifactError
from podline.cli import cli
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    with empty_charts():
        return finished_store(tmp_path_factory.mktemp("store"))


def missed(store: Finished, tried: list[Damage]) -> list[str]:
    """The damages that nobody named, or that somebody took for the truth."""
    whole, found = hear(store), []
    assert "\n0 problems" in whole.said["store verify"].replace(" checked, ", "\n")
    for damage in tried:
        word, wrong = judged(store, damage, whole)
        if (word == "silent" or wrong) and not harmless(damage):
            found.append(f"{damage.kind} {damage.name}: {word} {wrong}")
    assert hear(store) == whole
    return found


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_damages_and_deletions_of_each_kind_of_file_are_named(store: Finished, count: int) -> None:
    kinds: dict[str, list[str]] = {}
    for name in names(store.root):
        kinds.setdefault(kind_of(name), []).append(name)
    assert kinds.keys() == FILES.keys()
    last = [name for several in kinds.values() for name in several[-2:]]
    gone = [Damage(name, "delete", (store.root / name).read_bytes(), None) for name in last]
    assert missed(store, [*gone, *itertools.islice(damages(store, count), count)]) == []


def said(store: Finished, *command: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, [*command, "--root", str(store.root)])
    error = found.exception
    code = getattr(error, "exit_code", found.exit_code)
    return code, f"{found.output}{'' if isinstance(error, SystemExit) else error or ''}"


@contextmanager
def changed(store: Finished, name: str, content: bytes | None) -> Iterator[Path]:
    path = store.root / name
    before = path.read_bytes() if path.exists() else None
    path.unlink() if content is None else path.write_bytes(content)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True) if before is None else path.write_bytes(before)


def test_a_damaged_entry_is_named_after_the_others_and_a_foreign_one_beside_them(store: Finished) -> None:
    entries = sorted(name for name in names(store.root) if kind_of(name) == "entry")
    content = (store.root / entries[0]).read_bytes()
    for damaged in (content.replace(b'"top1"', b'"top2"'), content[:1000]):
        with changed(store, entries[0], damaged) as path:
            code, text = said(store, "runs", "list")
            assert (code, str(path) in text, text.count("cifar10  finished")) == (4, True, 1)
            assert said(store, "store", "verify")[0] == 4
    with changed(store, "ledger/20269999T000000Z-cifar10-finished-0123abcd.json", content) as path:
        code, text = said(store, "runs", "list")
        assert (code, f"{path} is skipped" in text, text.count("cifar10  finished")) == (0, True, 2)
        assert str(path) in said(store, "store", "verify")[1]


def test_a_lost_record_makes_no_other_file_changed_and_hides_no_other_champion(
    store: Finished,
) -> None:
    [*runs] = sorted({name.split("/")[1] for name in names(store.root) if name.endswith("/stages/train.json")})
    with changed(store, f"runs/{runs[0]}/stages/train.json", None):
        assert "was changed after its publication" not in said(store, "store", "verify")[1]
    with changed(store, f"runs/{runs[0]}/stages/evaluate.json", b"") as path:
        code, text = said(store, "models", "list", "cifar10")
        assert (code, str(path) in text, runs[1] in text) == (4, True, True)
    with changed(store, f"runs/{runs[0]}/evaluation.json", None) as path:
        code, text = said(store, "runs", "compare", runs[0], runs[1], "--why")
        assert (code, f"cannot read {path}" in text, "; put it back, or run the command" in text) == (5, True, True)


def people(root: Path) -> Manifest:
    return publish_people(root, train=6, test=3, side=32, keep_jpeg=True)


def read(folder: Path, manifest: Manifest) -> int:
    reader = SplitReader(folder.joinpath, manifest, "train")
    return len(reader.gather(np.arange(len(reader)))["image"])


@pytest.mark.parametrize("publish", [publish_dataset, people])
def test_each_of_100_flipped_bits_is_named(tmp_path: Path, publish) -> None:
    manifest, chance = publish(tmp_path), random.Random(0)
    folder = tmp_path / manifest.folder
    files = [file.file for shard in manifest.split("train").shards for file in shard.files]
    for _ in range(100):
        file = chance.choice(files)
        whole = (folder / file).read_bytes()
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        (folder / file).write_bytes(damaged)
        with pytest.raises(ArtifactError, match=file):
            read(folder, manifest)
        (folder / file).write_bytes(whole)
    assert read(folder, manifest) == manifest.split("train").records
