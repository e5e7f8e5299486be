"""Stages as data: identity by what matters, and completion records that a damaged file voids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish

from podline.base.errors import StoreError
from podline.base.progress import Reporter
from podline.documents.metric import Metric
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


def test_what_was_done_is_known_by_what_matters_and_not_by_where_or_how() -> None:
    spec = ConvertSpec(root="/a", dataset="cifar10", source="/x")
    elsewhere = spec.model_copy(update={"root": "/b", "source": "/y", "workers": 9, "beam_options": ("--a=b",)})
    assert elsewhere.digest() == spec.digest()
    assert spec.model_copy(update={"seed": 1}).digest() != spec.digest()

    training = TrainSpec(root="/a", recipe=RECIPE, fingerprint="f")
    assert training.run.startswith("tiny-")
    assert training.model_copy(update={"root": "/b"}).run == training.run
    other_seed = training.model_copy(update={"recipe": RECIPE.model_copy(update={"seed": 1})})
    other_data = training.model_copy(update={"fingerprint": "g"})
    assert len({training.run, other_seed.run, other_data.run}) == 3


def _find(store: Store, **changes: Any) -> tuple[Any, list[str]]:
    """What is found of an evaluation, and what is said."""
    heard: list[str] = []
    reporter = Reporter("evaluate", lambda event: heard.append(event["message"]))
    return EVALUATE.find(_evaluate(store, **changes), reporter), heard


def _done(store: Store) -> EvaluateResult:
    result = EvaluateResult(
        run="r", dataset="sample", examples=5, metrics={"top1": Metric(value=0.5, low=0.1, high=0.9)}, untrained=0.1,
        evaluation_sha256="e", seconds=2.0,
    )  # fmt: skip
    store.publish_bytes("runs/r/evaluation.json", b"{}")
    complete(store, "runs/r", _evaluate(store), result, ["runs/r/evaluation.json"])
    return result


def test_a_finished_stage_is_found_by_its_own_spec_alone(store: Store) -> None:
    result = _done(store)
    assert _find(store) == (result.model_copy(update={"reused": True}), [])
    assert _find(store, weights_sha256="v")[0] is None
    assert _find(store, run="s")[0] is None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("evaluation.json", None, "is gone"),
        ("evaluation.json", b"{}}", "has 3 bytes, expected the 2 that were written"),
        ("evaluation.json", b"[]", "has sha256 4f53cda18c2b…, expected 44136fa355b3…"),
        ("stages/evaluate.json", b'{"stage": "evaluate"', "cannot be read"),
    ],
)
def test_a_damaged_artifact_or_record_voids_the_record_and_says_why(
    store: Store, name: str, content: bytes | None, words: str
) -> None:
    _done(store)
    file = store.local(f"runs/r/{name}")
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    found, [message] = _find(store)
    assert found is None
    assert words in message


def test_without_a_manifest_the_remedy_is_said(store: Store) -> None:
    with pytest.raises(StoreError, match="run `podline convert` first"):
        manifest_sha256(store, "datasets/sample/f")


@pytest.mark.parametrize(
    ("images", "given", "batch", "rate", "duration", "every"),
    [
        (126, {}, 16, 0.05, Duration(epochs=58), Duration(steps=28)),
        (3000, {}, 64, 0.05, Duration(epochs=30), Duration(epochs=1)),
        (6, {}, 6, 0.05, Duration(epochs=400), Duration(steps=80)),
        (126, {"duration.steps": 50}, 16, 0.05, Duration(steps=50), Duration(steps=13)),
        (126, {"batch_size": 64}, 64, 0.05, Duration(epochs=400), Duration(steps=4)),
        (40, {"batch_size": 64, "duration.epochs": 5}, 40, 0.05, Duration(epochs=5), Duration(steps=2)),
        (126, {"evaluate_every.steps": 2}, 16, 0.05, Duration(epochs=58), Duration(steps=2)),
        (126, {"fit.rate": True}, 16, 0.0125, Duration(epochs=58), Duration(steps=28)),
    ],
)
def test_few_images_make_smaller_batches_and_more_epochs_unless_these_are_given(
    tmp_path: Path, images: int, given: dict[str, Any], batch: int, rate: float, duration: Duration, every: Duration
) -> None:
    splits = {"train": drawn(images, 0, side=2), "test": drawn(77, 1, side=2)}
    publish(tmp_path, "sample", CLASS_NAMES, splits, shard_records=images)
    told: list[str] = []
    recipe = registry.override(registry.get("images"), given)
    found = fitted(open_store(tmp_path), recipe, f"datasets/sample/{FINGERPRINT}", told.append)
    assert (found.batch_size, found.schedule.learning_rate, found.duration) == (batch, rate, duration)
    assert found.evaluate_every == every
    same = (found.batch_size, found.schedule, found.duration) == (recipe.batch_size, recipe.schedule, recipe.duration)
    enough = [line for line in told if "for enough steps" in line]
    assert [f"{images:,} training images" in line for line in enough] == ([] if same else [True])
    assert fitted(open_store(tmp_path), found, "unread") == found
