"""A power cut loses what no disk was waited for, and nothing else; the same command again gives the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from compared_files import comparable, differences
from power_cuts import STATES, Cut, PowerCuts
from raw_cifar import convert_spec, write_raw_cifar
from small_dataset import FINGERPRINT, publish_dataset

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.documents.metrics_log import read_events
from podline.ledger.inventory.verification import verify
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe
from podline.stages.specs import ConvertSpec, TrainSpec
from podline.store.opening import open_store
from podline.training.train import train


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_cifar(tmp_path_factory.mktemp("power") / "raw")


def cut_while_converting(spec: ConvertSpec, copies: Path, numbers: set[int]) -> PowerCuts:
    """A conversion, and what the disk may hold after cuts before its operations of these numbers."""
    with pytest.MonkeyPatch.context() as patch:
        cuts = PowerCuts(Path(spec.root), copies, numbers.__contains__, patch)
        convert(spec, silent())
    return cuts


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that starts again waits for the leases of its former processes."""
    monkeypatch.setenv("PODLINE_STORE_LEASE", "1")


@pytest.fixture(scope="module")
def operations(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The fewest that a conversion makes: shards that end at the same time share the syncing of their folder."""
    folders = [tmp_path_factory.mktemp("counted") for _ in range(3)]
    return min(cut_while_converting(convert_spec(at / "root", raw), at / "copies", set()).operations for at in folders)


@pytest.mark.parametrize("count", [2, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_conversion_after_power_cuts_gives_the_same_bytes(
    tmp_path: Path, raw: Path, operations: int, count: int
) -> None:
    spec = convert_spec(tmp_path / "root", raw)
    # In the midst of the shards, and when all but the completion record is there.
    numbers = {operations // 2, operations - 2}
    numbers |= set(random.Random(0).sample(range(1, operations), min(count, operations - 1))) if count > 2 else set()
    cuts = cut_while_converting(spec, tmp_path / "copies", numbers).cuts
    for state in STATES:
        assert len(cuts[state]) == len(numbers)
        for cut in cuts[state]:
            assert_recovers(spec, cut)


def assert_recovers(spec: ConvertSpec, cut: Cut) -> None:
    assert cut.broken == []
    again = spec.model_copy(update={"root": str(cut.folder)})
    convert(again, silent())
    store = open_store(cut.folder)
    assert differences(comparable(store), comparable(open_store(spec.root))) == []
    assert verify(store, silent())[1] == []


RECIPE = Recipe(
    name="t",
    dataset="sample",
    model=ModelSettings(kind="linear"),
    batch_size=4,
    duration=Duration(steps=20),
    checkpoint_steps=5,
    summary_steps=5,
    deterministic=True,
)


def spec_of(root: Path) -> TrainSpec:
    return TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT, preflight=False)


@pytest.mark.slow
def test_a_training_after_power_cuts_gives_the_same_bytes(tmp_path: Path) -> None:
    counted, watched = spec_of(tmp_path / "counted"), spec_of(tmp_path / "watched")
    operations = 0
    for spec, numbers in ((counted, ()), (watched, (0.3, 0.6, 0.95))):
        publish_dataset(Path(spec.root))
        at = {round(share * operations) for share in numbers}
        with pytest.MonkeyPatch.context() as patch:
            cuts = PowerCuts(Path(spec.root), tmp_path / f"copies{len(at)}", at.__contains__, patch)
            train(spec, silent())
        operations = cuts.operations
    expected = comparable(open_store(watched.root))
    assert differences(comparable(open_store(counted.root)), expected) == []
    for state in STATES:
        went_on = []
        for cut in cuts.cuts[state]:
            assert cut.broken == []
            again = spec_of(cut.folder)
            train(again, silent())
            store = open_store(cut.folder)
            assert differences(comparable(store), expected) == []
            assert verify(store, silent())[1] == []
            events = read_events(store.local(f"{again.folder}/events.jsonl"))
            *_, last = (event for event in events if event.event in ("started", "restored"))
            went_on.append((last.event, last.step))
        assert went_on == [("restored", 5), ("restored", 15), ("restored", 20)], state
