"""A rehearsal tells how long a training and its input take, and fails in seconds where the training would."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from small_dataset import FINGERPRINT, seal, small_recipe

from podline import notebook
from podline.base.errors import ArtifactError, DivergenceError, SettingsError, StoreError
from podline.base.progress import silent
from podline.data.records import place_of
from podline.data.tfrecord import FRAME_BYTES
from podline.documents.manifest import dataset_folder, read_manifest
from podline.input import augmentation
from podline.input.pipeline import TrainingInput
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.classification.records import ClassTargets
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import AugmentationSettings
from podline.stages.from_recipe import pace_spec, within
from podline.stages.specs import TrainSpec
from podline.stages.table import PACE
from podline.stages.tools import InputSpeed, PreflightSpec
from podline.store.opening import open_store
from podline.training import rehearsal
from podline.training.loop import StepsDone
from podline.training.run import PhasedSteps
from podline.training.train import pace, preflight, train

RECIPE = small_recipe(duration=Duration(steps=30), evaluate_every=Duration(steps=12), checkpoint_steps=8)


def spec_of(root: Path, kind=PreflightSpec, **changes: Any) -> PreflightSpec | TrainSpec:
    return kind(root=str(root), recipe=RECIPE.changed(**changes), fingerprint=FINGERPRINT)


def files(root: Path) -> dict[str, bytes]:
    """What is published, without what the store remembers; nothing is left in temporary files either."""
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith((".podline/verified/", "targets/"))}


def test_a_preflight_says_what_a_training_will_take_and_leaves_nothing(root):
    before = files(root)
    answer = preflight(spec_of(root), silent())
    assert files(root) == before
    assert answer.run == spec_of(root, TrainSpec).run
    assert (answer.steps, answer.batch_size, answer.devices) == (30, 8, "cpu")
    assert answer.evaluations == 3, "after 12, 24 and 30 steps"
    result = train(spec_of(root, TrainSpec), silent())
    [checkpoint] = (root / result.folder / "checkpoints").glob("*.npz")
    assert answer.checkpoint_bytes == pytest.approx(checkpoint.stat().st_size, rel=0.01)
    parts = 30 * answer.step + 3 * answer.evaluation + 4 * answer.checkpoint
    assert answer.training_seconds == pytest.approx(parts), "a checkpoint every 8 steps and one at the end"
    assert answer.memory_bytes > 50_000_000, "TensorFlow alone takes more"
    trained = files(root)
    preflight(spec_of(root), silent())
    assert files(root) == trained, "a run that is there stays as it is"


def test_each_phase_counts_by_its_own_steps_and_features_once(root, monkeypatch):
    recipe = small_recipe(
        model={"kind": "resnet", "width": 0.1},
        duration={"epochs": 6},
        evaluate_every=None,
        augmentation={"flip": True, "views": 2},
        trainable_layers=("classifier",),
        phases=(PhaseSettings(from_epoch=5, changes={"batch_size": 16, "trainable_layers": [""]}),),
    )
    # Seconds of a step in each call: two calls for the later phase, two for the first, one with known features.
    seconds = iter([9.0, 0.5, 9.0, 3.0, 0.25])
    advance = PhasedSteps.advance

    def clocked(steps: PhasedSteps, count: int) -> StepsDone:
        return replace(advance(steps, count), seconds=count * next(seconds))

    monkeypatch.setattr(PhasedSteps, "advance", clocked)
    answer = preflight(PreflightSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT), silent())
    stepping = 24 * 3.0 + 36 * 0.25 + 6 * 0.5
    rest = answer.evaluations * answer.evaluation + answer.checkpoint
    assert stepping + rest < answer.training_seconds < stepping + rest + 60, "the later phase is traced, too"
    assert (answer.features_seconds, answer.saved_seconds) == pytest.approx((24 * 2.75, 36 * 2.75))
    assert answer.share_within(66 + 2 * (answer.training_seconds - 66)) == pytest.approx(2), "features are not repeated"
    assert answer.share_within(33) == pytest.approx(33 / (answer.training_seconds + 99)), "all steps compute features"
    assert "3000 ms each (2.67 examples/s), in the first of 2 phases" in answer.lines()[1]


def test_a_training_fits_into_its_minutes_by_a_measurement_that_is_kept_until_its_folder_is_deleted(root):
    training, told, spec = spec_of(root, TrainSpec), list[str](), pace_spec(spec_of(root, TrainSpec), 0.5)

    def measured(spec):
        return PACE.find(spec, silent()) or pace(spec, silent())

    first = within(0.5, training, open_store(root), measured, told.append)
    assert first.recipe.duration.steps > 30, "which take a second"
    answer = PACE.find(spec, silent())
    assert 5 < answer.training_seconds < 30
    assert RECIPE.changed(duration=answer.duration) == first.recipe
    assert within(0.5, training, open_store(root), measured, told.append) == first
    assert PACE.find(pace_spec(training, 0.6), silent()) is None
    assert ["measured before" in line for line in told] == [False, True]
    [folder] = {Path(re.search(r"delete (\S+) to measure again", line)[1]) for line in told}
    shutil.rmtree(folder)
    assert PACE.find(spec, silent()) is None
    with pytest.raises(SettingsError, match=r"^1e-05 minutes vs .* s for each step: give more minutes"):
        pace(pace_spec(training, 1e-5), silent())


def test_a_label_that_the_head_has_no_output_for_is_named_with_its_place(root):
    manifest = read_manifest(open_store(root), dataset_folder("sample", FINGERPRINT))
    first, shard, *_ = manifest.split("train").shards
    frame, file = manifest.record_length + FRAME_BYTES, root / dataset_folder("sample", FINGERPRINT) / shard.file
    content = bytearray(file.read_bytes())
    content[2 * frame + place_of(manifest.field("label")).start] = 9
    file.write_bytes(content)
    seal(root)
    place = rf"example {first.records + 2} of the training split \(record 2 of {shard.file}, at byte {2 * frame}\)"
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"{place} has the label 9, expected 0 to 2; convert the data again"):
            preflight(spec_of(root), silent())


def test_targets_are_checked_once_for_a_version_of_a_data_set(root, monkeypatch):
    checked = list[int]()
    monkeypatch.setattr(ClassTargets, "check", lambda _self, records, _manifest: checked.append(len(records["label"])))
    for _ in range(2):
        preflight(spec_of(root), silent())
    assert checked == [96]


def test_a_batch_that_does_not_fit_is_refused_with_the_size_that_would(root, monkeypatch):
    monkeypatch.setattr(rehearsal, "available_memory", lambda: 50)
    with pytest.raises(SettingsError, match=r"batch_size=8 needs more than 96 bytes .* 50 bytes free; .* at most 4"):
        preflight(spec_of(root), silent())
    monkeypatch.setattr(rehearsal, "available_memory", lambda: 30)
    with pytest.raises(SettingsError, match=r"batch_size=8 needs more than 48 bytes .* 30 bytes free; .* at most 4"):
        preflight(spec_of(root, accumulate=2), silent())


def test_a_field_that_the_records_do_not_hold_is_named(root, monkeypatch):
    monkeypatch.setattr(ClassificationObjective, "target", "depth")
    with pytest.raises(ArtifactError, match="has no field 'depth'; it has image, label"):
        preflight(spec_of(root), silent())


@pytest.mark.parametrize(
    ("terms", "error", "words"),
    [
        (lambda _self, batch, _outputs: batch["depth"], SettingsError, "of t-[0-9a-f]{12} fails: KeyError: 'depth'"),
        (lambda _self, _batch, outputs: {"x": outputs[:, 0] * np.nan}, DivergenceError, "the loss is nan at step 1"),
        (Mock(side_effect=MemoryError), SettingsError, r"a batch of 8 does not fit .*; choose a smaller batch_"),
        (Mock(side_effect=StoreError("the disk is gone")), StoreError, "the disk is gone"),
    ],
)
def test_a_first_step_that_fails_does_so_before_the_training_with_its_cause(root, monkeypatch, terms, error, words):
    monkeypatch.setattr(ClassificationObjective, "terms", terms)
    with pytest.raises(error, match=words):
        preflight(spec_of(root), silent())


def test_checkpoints_that_cannot_be_written_are_found(root):
    folder = root / spec_of(root).folder
    folder.mkdir(parents=True)
    (folder / "checkpoints").write_bytes(b"in the way")
    with pytest.raises(StoreError, match=f"cannot write {folder}/checkpoints/preflight.npz"):
        preflight(spec_of(root), silent())


# So much longer than anything that the small data set's stages do, that no hiccup of the machine makes up for it.
SLOW = 0.15
SLOWED = small_recipe(duration=Duration(steps=30), augmentation=AugmentationSettings(flip=True))


def measure(root: Path) -> InputSpeed:
    return notebook.benchmark_input(SLOWED, str(root), seconds=0.02)


@pytest.mark.parametrize(
    ("owner", "name", "stage", "advice"),
    [(augmentation, "augment", "augment", "use less augmentation"), (TrainingInput, "read", "read", "a faster disk")],
)
def test_a_slow_stage_is_named_and_advice_given(
    root: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, stage: str, advice: str
) -> None:
    quick = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: time.sleep(SLOW) or quick(*given, **named))
    found = measure(root)
    assert (found.bottleneck, found.feeds) == (stage, False)
    assert found.waiting > 0.5
    assert advice in str(found)
    [slow] = [one for one in found.stages if one.name == stage]
    assert (slow.milliseconds >= 1000 * SLOW, slow.examples_per_second <= 8 / SLOW) == (True, True)


def test_what_cannot_be_measured_says_what_to_type(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no layer with weights starts with 'head'"):
        notebook.benchmark_input(SLOWED.model_copy(update={"trainable_layers": ("head",)}), str(root), seconds=0.02)
    with pytest.raises(StoreError, match="make one with `podline convert sample"):
        measure(tmp_path / "empty")
