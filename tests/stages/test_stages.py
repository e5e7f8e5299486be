"""Stages as data: identity by what matters, and completion records that a damaged file voids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish

from podline.documents.metric import Metric
from podline.errors import StoreError
from podline.progress import Reporter
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.stages.completed import complete, manifest_sha256
from podline.stages.from_recipe import fitted
from podline.stages.specs import ConvertSpec, EvaluateResult, EvaluateSpec, TrainSpec
from podline.stages.table import EVALUATE
from podline.store.contract import Store
from podline.store.opening import open_store

RECIPE = Recipe(name="tiny", dataset="sample", duration=Duration(steps=3))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def _evaluate(store: Store, **changes: Any) -> EvaluateSpec:
    settings = {"root": store.uri, "run": "r", "dataset": "sample", "fingerprint": "f", "weights_sha256": "w"}
    return EvaluateSpec(**{**settings, **changes})


def test_the_digest_is_of_what_matters_and_not_of_where_or_how() -> None:
    spec = ConvertSpec(root="/a", dataset="cifar10", source="/x")
    elsewhere = spec.model_copy(update={"root": "/b", "source": "/y", "workers": 9, "beam_options": ("--a=b",)})
    assert elsewhere.digest() == spec.digest()
    assert spec.model_copy(update={"seed": 1}).digest() != spec.digest()


def test_a_run_is_named_by_all_that_training_depends_on() -> None:
    spec = TrainSpec(root="/a", recipe=RECIPE, fingerprint="f")
    assert spec.run.startswith("tiny-")
    assert spec.model_copy(update={"root": "/b"}).run == spec.run
    other_seed = spec.model_copy(update={"recipe": RECIPE.model_copy(update={"seed": 1})})
    other_data = spec.model_copy(update={"fingerprint": "g"})
    assert len({spec.run, other_seed.run, other_data.run}) == 3


def test_every_spec_and_result_goes_through_json_unchanged() -> None:
    spec = TrainSpec(root="/a", recipe=RECIPE, fingerprint="f")
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        TrainSpec.model_validate({**spec.model_dump(), "epochz": 3})


class Heard:
    """A reporter's listener that keeps what it heard."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.reporter = Reporter("evaluate", lambda event: self.messages.append(event["message"]))


def _done(store: Store) -> tuple[EvaluateSpec, EvaluateResult]:
    spec = _evaluate(store)
    result = EvaluateResult(
        run="r", dataset="sample", examples=5, metrics={"top1": Metric(value=0.5, low=0.1, high=0.9)}, untrained=0.1,
        evaluation_sha256="e", seconds=2.0,
    )  # fmt: skip
    store.publish_bytes("runs/r/evaluation.json", b"{}")
    complete(store, "runs/r", spec, result, ["runs/r/evaluation.json"])
    return spec, result


def test_a_finished_stage_is_found_and_says_that_it_is_reused(store: Store) -> None:
    spec, result = _done(store)
    heard = Heard()
    assert EVALUATE.find(spec, heard.reporter) == result.model_copy(update={"reused": True})
    assert heard.messages == []


def test_another_spec_is_not_done(store: Store) -> None:
    _done(store)
    assert EVALUATE.find(_evaluate(store, weights_sha256="v"), Heard().reporter) is None
    assert EVALUATE.find(_evaluate(store, run="s"), Heard().reporter) is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(b"{}}"), "3 bytes vs 2"),
        (lambda path: path.write_bytes(b"[]"), "has sha256 4f53cda18c2b… vs 44136fa355b3…"),
    ],
)
def test_a_damaged_artifact_voids_the_record_and_says_why(store: Store, damage: Any, words: str) -> None:
    spec, _ = _done(store)
    damage(store.local("runs/r/evaluation.json"))
    heard = Heard()
    assert EVALUATE.find(spec, heard.reporter) is None
    assert len(heard.messages) == 1
    assert words in heard.messages[0]


def test_a_damaged_record_is_said_and_passed_over(store: Store) -> None:
    spec, _ = _done(store)
    store.local("runs/r/stages/evaluate.json").write_bytes(b'{"stage": "evaluate"')
    heard = Heard()
    assert EVALUATE.find(spec, heard.reporter) is None
    assert "cannot be read" in heard.messages[0]


def test_without_a_manifest_the_remedy_is_said(store: Store) -> None:
    with pytest.raises(StoreError, match="run `podline convert` first"):
        manifest_sha256(store, "datasets/sample/f")


@pytest.mark.parametrize(
    ("images", "given", "batch", "rate", "duration", "every"),
    [
        (126, {}, 16, 0.05, Duration(epochs=58), 2),
        (705, {}, 64, 0.05, Duration(epochs=37), 2),
        (3000, {}, 64, 0.05, Duration(epochs=30), 1),
        (6, {}, 6, 0.05, Duration(epochs=400), 14),
        (126, {"duration.epochs": 20}, 16, 0.05, Duration(epochs=20), 1),
        (126, {"duration.steps": 50}, 16, 0.05, Duration(steps=50), 1),
        (126, {"batch_size": 64}, 64, 0.05, Duration(epochs=400), 14),
        (40, {"batch_size": 64, "duration.epochs": 5}, 40, 0.05, Duration(epochs=5), 1),
        (126, {"schedule.learning_rate": 0.1}, 16, 0.1, Duration(epochs=58), 2),
        (126, {"fit.rate": True}, 16, 0.0125, Duration(epochs=58), 2),
    ],
)
def test_few_images_make_smaller_batches_and_more_epochs_unless_these_are_given(
    tmp_path: Path, images: int, given: dict[str, Any], batch: int, rate: float, duration: Duration, every: int
) -> None:
    splits = {"train": drawn(images, 0, side=2), "test": drawn(4, 1, side=2)}
    publish(tmp_path, "sample", CLASS_NAMES, splits, shard_records=images)
    told: list[str] = []
    recipe = registry.override(registry.get("images"), given)
    found = fitted(open_store(tmp_path), recipe, f"datasets/sample/{FINGERPRINT}", told.append)
    assert (found.batch_size, found.schedule.learning_rate, found.duration) == (batch, rate, duration)
    assert found.evaluate_every == Duration(epochs=every)
    same = (found.batch_size, found.schedule, found.duration) == (recipe.batch_size, recipe.schedule, recipe.duration)
    assert [f"{images:,} training images" in line for line in told] == ([] if same else [True])
    assert fitted(open_store(tmp_path), found, "unread") == found
