"""Machines with one bucket that train the same run, while they are suspended, cut off and killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe
from two_machines import SmallTrainSpec, played, real_recipe, schedule

from podline.ledger import ledger
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("in_children")


@pytest.mark.slow
def test_a_suspended_machine_leaves_the_result_of_the_other_and_both_are_told(
    tmp_path: Path, gcs: str, gcs_root: str
) -> None:
    store = open_store(gcs_root)
    spec = SmallTrainSpec(root=store.uri, recipe=small_recipe(), fingerprint=FINGERPRINT)
    # Suspended in the middle of the training, until the other one has ended.
    acts = [(0.2, 1, "start"), (1.0, 0, "suspend"), (1.1, 0, "wait"), (1.2, 0, "resume")]
    found = played(tmp_path, gcs, store, spec, acts)
    assert found.problems == []
    assert found.codes == ([75, 0], [0])
    states = [(named.state, ledger.read(store, named.name).error) for named in ledger.names(store)]
    assert sorted(states) == [("failed", "OtherWriterError"), ("finished", ""), ("finished", "")]


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_fifty_drawn_schedules_of_two_machines(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    problems, codes = dict[int, list[str]](), list[int]()
    for seed in range(50):
        store = open_store(f"{gcs_root}{seed}")
        publish_dataset(store.uri)
        spec = TrainSpec(root=store.uri, recipe=real_recipe(), fingerprint=FINGERPRINT, preflight=False)
        found = played(tmp_path / str(seed), gcs, store, spec, schedule(seed, 8.0))
        codes += found.codes[0] + found.codes[1]
        if found.problems:
            problems[seed] = found.problems
    assert problems == {}
    assert codes.count(75) >= 10, "machines were overtaken"
