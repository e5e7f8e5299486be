"""A run that trains another further goes on from its last bit, and is refused where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from dying_runs import killed_at, lively_recipe, losses, specs_of
from small_dataset import publish_dataset

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import silent
from podline.documents.metrics_log import read_events
from podline.stages.specs import TrainResult
from podline.stages.tools import PreflightSpec
from podline.training.train import preflight, train

spec_of = specs_of(
    lively_recipe(duration={"epochs": 1}, optimizer={"kind": "adam"}, checkpoint_steps=5, summary_steps=4)
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> tuple[Path, TrainResult]:
    """A store with a finished run of one epoch."""
    root = tmp_path_factory.mktemp("store")
    publish_dataset(root)
    return root, train(spec_of(root), silent())


def test_an_epoch_and_two_further_ones_are_three_to_the_last_bit(base):
    root, first = base
    whole = spec_of(root, duration={"epochs": 3})
    expected = train(whole, silent())
    spec = spec_of(root, further=first.run, duration={"epochs": 1})
    second = train(spec, silent())
    assert (second.steps, second.steps_before, second.epochs_before) == (12, 12, 1)
    assert second.run != first.run
    further = spec_of(root, further=second.run, duration={"epochs": 1})
    third = train(further, silent())
    assert (third.steps_before, third.epochs_before) == (24, 2)
    assert third.weights_sha256 == expected.weights_sha256
    together = [loss for each in (spec_of(root), spec, further) for loss in losses(root / each.folder)]
    assert together == losses(root / whole.folder)
    started = read_events(root / spec.folder / "events.jsonl")[0]
    assert f"12 steps further from {first.run}" in started.message


def test_a_run_that_trains_another_further_goes_on_where_it_was_broken_off(base):
    root, first = base
    values = {"further": first.run, "duration": {"steps": 9}, "seed": 3}
    unbroken, broken = spec_of(root, **values), spec_of(root, **values, name="u")

    killed_at(broken, 8)
    result = train(broken, silent())
    assert result.resumed_from == (5,)
    assert result.weights_sha256 == train(unbroken, silent()).weights_sha256


def test_what_cannot_be_trained_further_is_refused(base):
    root, first = base
    with pytest.raises(SettingsError, match=r"further=u-0: .* has no finished training of that name"):
        train(spec_of(root, further="u-0"), silent())
    other = spec_of(root, further=first.run, model={"kind": "resnet", "width": 0.1})
    message = f"further={first.run}: that run's state does not fit this recipe: .* only a run of the same model"
    with pytest.raises(SettingsError, match=message):
        train(other, silent())
    with pytest.raises(SettingsError, match=message):
        preflight(PreflightSpec.model_validate(other.model_dump()), silent())


def test_a_base_without_its_last_checkpoint_is_named(tmp_path):
    publish_dataset(tmp_path)
    first = train(spec_of(tmp_path, duration={"steps": 3}), silent())
    for file in (tmp_path / first.folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(ArtifactError, match=f"further={first.run}: its newest checkpoint is of step 0 vs 3"):
        train(spec_of(tmp_path, further=first.run), silent())
