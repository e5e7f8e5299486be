"""A training goes on after a power cut from a checkpoint that was synced, and ends with the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from compared_files import comparable, differences
from power_cuts import STATES, PowerCuts
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import read_events
from podline.inventory.verification import verify
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.train import train

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
