"""A finished store is damaged in one place after another; each time a user is told, by the file's name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from damages import FILES, Damage, damages, harmless, hear, judged, kind_of, names
from empty_charts import empty_charts
from finished_store import Finished, finished_store

from podline.cli import cli
from podline.errors import ArtifactError
from podline.progress import Reporter
from podline.stages.specs import EvaluateSpec
from podline.stages.table import EVALUATE
from podline.store.opening import open_store
from podline.training.further import finished


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


def test_the_store_has_every_kind_of_file(store: Finished) -> None:
    assert {kind_of(name) for name in names(store.root)} == set(FILES)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_each_damage_is_named(store: Finished, count: int) -> None:
    assert missed(store, list(itertools.islice(damages(store, count), count))) == []


def test_files_of_each_kind_are_missed_when_they_are_deleted(store: Finished) -> None:
    gone = [Damage(name, "delete", (store.root / name).read_bytes(), None) for name in names(store.root)]
    kinds = itertools.groupby(sorted(gone, key=lambda each: kind_of(each.name)), lambda each: kind_of(each.name))
    assert missed(store, [each for _, several in kinds for each in [*several][-4:]]) == []


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


def test_an_evaluation_with_another_digit_is_no_evaluation_and_nobody_shows_it(store: Finished) -> None:
    spec = next(spec for spec in reversed(store.specs) if isinstance(spec, EvaluateSpec) and spec.split == "test")
    name = f"{spec.folder}/stages/evaluate.json"
    content = (store.root / name).read_bytes()
    lines: list[str] = []
    with changed(store, name, content.replace(b'"value": 1.0', b'"value": 0.9')) as path:
        assert path.read_bytes() != content
        assert EVALUATE.find(spec, Reporter("evaluate", lambda event: lines.append(str(event)))) is None
        code, text = said(store, "store", "verify")
    assert "evaluate.json was changed since it was written" in lines[0]
    assert "this stage runs again" in lines[0]
    assert (code, f"{path} was changed since it was written" in text) == (4, True)


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
        assert (code, f"{path} is left out" in text, text.count("cifar10  finished")) == (0, True, 2)
        assert str(path) in said(store, "store", "verify")[1]


def test_a_history_with_a_gap_is_not_the_history(store: Finished) -> None:
    with changed(store, "models/cifar10/history/000002.json", None) as path:
        for command in (("models", "list"), ("models", "list", "cifar10"), ("store", "verify")):
            code, text = said(store, *command)
            assert (code, f"{path} is missing" in text) == (4, True), command
    first = "models/cifar10/history/000001.json"
    document = json.loads((store.root / first).read_bytes())
    other = document["weights_sha256"].translate(str.maketrans("0123456789", "1234567890"))
    with changed(store, first, json.dumps(document | {"weights_sha256": other}).encode()):
        code, text = said(store, "models", "list")
        assert (code, "000001.json was changed since it was written" in text) == (4, True)


def test_a_run_is_trained_further_from_no_damaged_checkpoint(store: Finished) -> None:
    name = next(name for name in names(store.root) if kind_of(name) == "checkpoint" and name.endswith(".npz"))
    content = bytearray((store.root / name).read_bytes())
    content[len(content) // 2] ^= 1
    run = name.split("/")[1]
    assert finished(open_store(store.root), run).state()
    with changed(store, name, bytes(content)) as path:
        with pytest.raises(ArtifactError, match=rf"{path.name} has sha256"):
            finished(open_store(store.root), run).state()
        assert f"{path} has sha256" in said(store, "store", "verify")[1]
