"""A run leaves one entry however it ends, and the entry says what the documents of the run say."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_run import finished_run
from raw_cifar import convert_spec, converted_manifest, write_raw_cifar
from set_clock import SetClock

from podline.base.errors import ArtifactError, DivergenceError, HangError
from podline.base.progress import Reporter, silent
from podline.data.versions.version_changes import MOST_RECORDS, in_words
from podline.documents.ledger_entry import Entry, Origin, PromotionSummary
from podline.documents.manifest import Manifest
from podline.documents.origins import read_origin
from podline.ledger import ledger
from podline.ledger.inventory.catalogue import train_result, training_of
from podline.ledger.recording import Notes, overridden, recorded
from podline.recipes import registry
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings
from podline.stages.specs import (
    ConvertSpec,
    PromoteResult,
    PromoteSpec,
    ReportResult,
    TrainSpec,
    ValidateSpec,
)
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.tpu.tpu_log import TURN, Event
from podline.tpu.tpu_log import TpuLogEntry as Happening


def only_entry(store: Store) -> Entry:
    (named,) = ledger.names(store)
    entry = ledger.read(store, named.name)
    assert (entry.recipe, entry.state) == (named.recipe, named.state)
    assert named.ended == int(entry.ended)
    return entry


def night(root: Path, during: Any = None) -> Entry:
    """The entry of a run whose stages were all done before; what ``during`` raises ends it before its report."""
    spec = finished_run(root)
    store = open_store(root)
    training, trained = training_of(store, spec.run), train_result(store, spec.run)
    store.publish_bytes(f"runs/{spec.run}/model/weights.npz", b"weights")
    with recorded(open_store(root), "cifar10", "flow", silent(), flow_run="f1", attempt=2, late=3.5) as notes:
        notes.planned(training.recipe, Settings(root=str(root), launch="ray:http://me:hunter2@head:8265"), "cpu:2")
        notes.asked(ConvertSpec(root=str(root), dataset="cifar10", source="raw", seed=7))
        notes.asked(training)
        notes.answered(training, trained, 600.0)
        notes.retried("train", HangError("no sign of life\nsecond line"), 60.0)
        if during:
            during(notes)
        made = ReportResult(seconds=2.0, reused=True, html="page.html", markdown="page.md")
        notes.answered(spec, made, 0.1)
    return only_entry(store)


def test_an_entry_has_the_figures_of_the_evaluation_and_what_produced_them(tmp_path):
    entry = night(tmp_path)
    store = open_store(tmp_path)
    document = read_evaluation(store, f"runs/{entry.run}")
    trained = train_result(store, entry.run)
    assert (entry.state, entry.cause, entry.error) == ("finished", "", "")
    found = entry.outcome
    assert found.metrics == document.trained.metrics
    assert found.main == document.trained.metrics["top1"]
    assert found.untrained == document.untrained.metrics["top1"].value
    assert list(found.parts.values()) == [figures.accuracy for figures in document.per_class]
    assert found.evaluation_sha256 == store.sha256(f"runs/{entry.run}/evaluation.json")
    assert (found.parameters, found.weights_sha256) == (trained.parameters, trained.weights_sha256)
    assert found.model_bytes == len(b"weights")
    assert entry.training.examples_per_second == trained.examples_per_second
    assert set(entry.settings["recipe"]) == set(Recipe.model_fields)
    assert not {"root", "strategy", "store.cache"} & set(entry.settings["machine"])
    assert "hunter2" not in entry.model_dump_json()
    assert entry.overridden["duration.epochs"] == 10
    assert entry.seeds == {"recipe": 0, "data": 7}
    assert {name: split.records for name, split in entry.data.splits.items()} == {"train": 60, "test": 60}
    assert (entry.data.quarantined, entry.data.change) == (2, None)
    assert (entry.environment.strategy, entry.environment.devices) == ("cpu:2", "cpu")
    assert (entry.flow_run, entry.attempt, entry.report) == ("f1", 2, "page.html")
    assert entry.stages["train"].model_dump() == {"seconds": 600.0, "seconds_when_made": 588.4, "reused": False}
    assert entry.stages["report"].reused
    retry = {"stage": "train", "error": "HangError", "cause": "no sign of life", "delay": 60.0}
    assert [each.model_dump() for each in entry.retries] == [retry]
    assert (entry.waiting.start, entry.waiting.retries, entry.waiting.total) == (3.5, 60.0, 63.5)


@pytest.mark.parametrize("moved", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_meanwhile_does_not_change_what_a_run_took(tmp_path, monkeypatch, moved):
    clock = SetClock(monkeypatch)
    entry = night(tmp_path, lambda _notes: setattr(clock, "moved", moved))
    assert 0 <= entry.seconds < 3600
    assert abs(entry.ended - time.time()) < 3600


def test_a_training_that_is_found_done_is_by_what_produced_it_and_not_by_tonights_code(tmp_path):
    spec = finished_run(tmp_path)
    store = open_store(tmp_path)
    training, trained = training_of(store, spec.run), train_result(store, spec.run)

    def ran(version: str, *, reused: bool) -> Entry:
        result = trained.model_copy(update={"reused": reused})
        with recorded(open_store(tmp_path), "cifar10", "flow", silent()) as notes:
            notes.entry = notes.entry.model_copy(
                update={"code": notes.entry.code.model_copy(update={"version": version})}
            )
            notes.planned(training.recipe, Settings(workers=int(version)), "cpu")
            notes.asked(training)
            notes.answered(training, result, 1.0)
        return ledger.read(store, notes.entry.name)

    made = ran("1", reused=False)
    origin = read_origin(store, f"runs/{spec.run}")
    assert {name: getattr(made, name) for name in Origin.model_fields} == dict(origin)
    assert (origin.code.version, origin.environment.devices, origin.seeds["recipe"]) == ("1", "cpu", 0)

    found = ran("2", reused=True)
    assert (found.code, found.environment, found.settings) == (made.code, made.environment, made.settings)
    assert read_origin(store, f"runs/{spec.run}") == origin
    assert ran("3", reused=False).code.version == "3"
    again = read_origin(store, f"runs/{spec.run}")
    assert again.settings["machine"]["workers"] == 3


def test_waiting_is_what_the_tpus_story_tells_of_this_attempt(tmp_path):
    def wait(notes):
        def told(at: float, event: Event, what: str, took: float) -> dict[str, Any]:
            return Happening(at=notes.entry.began + at, event=event, what=what, took=took).model_dump(mode="json")

        tpu_log = [
            told(-9, Event.WAIT, "an earlier attempt", 1000.0),
            told(1, Event.WAIT, f"{TURN}: another flow run has the TPU", 20.0),
            told(2, Event.WAIT, "it is being created, started, stopped or repaired", 300.0),
            told(3, Event.RESTART, "it was not healthy", 90.0),
        ]
        notes.store.publish_json(f"runs/{notes.entry.run}/tpu.json", {"entries": tpu_log})

    waiting = night(tmp_path, wait).waiting
    assert (waiting.turn, waiting.tpu, waiting.repairs) == (20.0, 300.0, 90.0)


def damaged(file):
    return lambda notes: notes.store.publish_bytes(f"runs/{notes.entry.run}/{file}", b"{", replace=True)


def other_weights(notes):
    again = train_result(notes.store, notes.entry.run).model_copy(update={"weights_sha256": "cd" * 32})
    notes.answered(training_of(notes.store, notes.entry.run), again, 1.0)


@pytest.mark.parametrize(
    ("during", "kept"), [(damaged("evaluation.json"), False), (damaged("tpu.json"), True), (other_weights, False)]
)
def test_a_damaged_file_or_one_of_other_weights_costs_the_entry_what_it_says_and_no_more(tmp_path, during, kept):
    entry = night(tmp_path, during)
    assert (entry.state, entry.outcome is not None) == ("finished", kept)


@pytest.mark.parametrize(
    ("error", "state", "cause"),
    [
        (DivergenceError("step 7: the loss is nan\nlook at the learning rate"), "failed", "step 7: the loss is nan"),
        (KeyboardInterrupt(), "cancelled", "KeyboardInterrupt"),
    ],
)
def test_a_run_that_failed_or_was_cancelled_leaves_why(tmp_path, error, state, cause):
    def end(_notes: Notes) -> None:
        raise error

    with pytest.raises(type(error)):
        night(tmp_path, end)
    entry = only_entry(open_store(tmp_path))
    assert (entry.state, entry.error, entry.cause) == (state, type(error).__name__, cause)
    assert entry.training is not None


def test_a_ledger_that_cannot_be_written_does_not_hide_why_a_run_failed(tmp_path, monkeypatch):
    def publish(_store: Any, _source: Path, _name: str, **_options: Any) -> None:
        raise ArtifactError("the disk is away")

    events: list[Any] = []
    monkeypatch.setattr(FolderStore, "publish_file", publish)
    reporter = Reporter("ledger", events.append)
    with pytest.raises(DivergenceError), recorded(open_store(tmp_path), "mnist", "commands", reporter):
        raise DivergenceError("nan")
    assert events[0]["message"] == "the ledger has no entry of this run: the disk is away"
    with pytest.raises(ArtifactError), recorded(open_store(tmp_path), "mnist", "commands", silent()):
        pass


def test_nothing_is_told_of_what_is_dropped_unless_it_fails(tmp_path):
    with recorded(open_store(tmp_path), "mnist", "commands", silent()) as notes:
        notes.dropped = True
    assert ledger.names(open_store(tmp_path)) == []

    def stuck(notes: Notes) -> None:
        notes.dropped = True
        raise HangError("stuck")

    with pytest.raises(HangError), recorded(open_store(tmp_path), "mnist", "commands", silent()) as notes:
        stuck(notes)
    assert only_entry(open_store(tmp_path)).state == "failed"


def test_what_is_overridden_is_told_by_its_path():
    recipe = registry.get("cifar10")
    changed = registry.override(recipe, {"schedule.learning_rate": 0.123, "validation_share": 0.1})
    assert overridden(changed) == {"schedule.learning_rate": 0.123, "validation_share": 0.1}
    assert overridden(recipe) == overridden(recipe.model_copy(update={"name": "mine"})) == {}
    assert overridden(registry.override(recipe, {"duration.steps": 5})) == {"duration.steps": 5}


def test_what_is_switched_off_is_overridden():
    none = {"early_stop": None}
    assert overridden(registry.override(registry.get("images"), none | {"fit": None})) == none, "a training applies fit"
    assert overridden(registry.override(registry.get("cifar10"), none)) == {}, "it is off there"


def trained_on(root: Path, manifest: Manifest) -> Entry:
    """The entry of a run on a data set, as far as it is known when its training begins."""
    time.sleep(1 - time.time() % 1)  # entries of one second have no order
    recipe = registry.get("cifar10")
    validate = ValidateSpec(
        root=str(root), dataset="cifar10", fingerprint=manifest.fingerprint, manifest_sha256="not looked at"
    )
    with recorded(open_store(root), "cifar10", "flow", silent()) as notes:
        notes.planned(recipe, Settings(), "cpu")
        notes.asked(validate)
        notes.asked(TrainSpec(root=str(root), recipe=recipe, fingerprint=manifest.fingerprint))
    return ledger.read(open_store(root), notes.entry.name)


def test_the_data_are_held_against_those_of_the_run_before(tmp_path):
    data = converted_manifest(convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "first")))
    first = trained_on(tmp_path / "root", data)
    assert first.data.change is None
    changed = write_raw_cifar(tmp_path / "second")
    batch = np.fromfile(changed / "data_batch_5.bin", np.uint8).reshape(-1, 3073)
    batch[4, 0] = (batch[4, 0] + 1) % 10
    batch[:-1].tofile(changed / "data_batch_5.bin")
    new = np.full((30, 3073), 200, np.uint8)
    new[:, 0], new[:, 1] = 3, np.arange(30)
    np.concatenate([np.fromfile(changed / "test_batch.bin", np.uint8), new.ravel()]).tofile(changed / "test_batch.bin")
    second = trained_on(tmp_path / "root", converted_manifest(convert_spec(tmp_path / "root", changed))).data
    assert second.change.unknown == ""
    train, test = second.change.splits["train"], second.change.splits["test"]
    assert (train.added.count, train.removed.count, train.relabelled.count) == (0, 1, 1)
    assert (test.added.count, test.removed.count, test.relabelled.count) == (30, 0, 0)
    assert second.change.before == first.name
    assert len(test.added.records) == MOST_RECORDS
    assert re.fullmatch(r"train\[\d+\] \w+ → \w+", train.relabelled.records[0])
    assert in_words(test).endswith(" and 24 more)")
    # Data that are gone are no reason not to train.
    store = open_store(tmp_path / "root")
    for name in store.list(f"datasets/cifar10/{second.fingerprint}"):
        store.delete(name)
    assert f"{second.fingerprint}/manifest.json" in trained_on(tmp_path / "root", data).data.change.unknown


@pytest.mark.parametrize(
    ("result", "verdict", "reason"),
    [
        ({"doubt": "one more training"}, "undecided", "one more training"),
        ({"refusals": ("class cat", "class dog")}, "refused", "class cat; 1 more in the report"),
    ],
)
def test_a_promotion_is_told_with_its_reason(tmp_path, result, verdict, reason):
    names = dict.fromkeys(("dataset", "fingerprint", "recipe", "weights_sha256", "evaluation_sha256"), "x")
    asked = PromoteSpec(root=str(tmp_path), run="r", **names)
    named = {"run": "r", "recipe": "x", "reference": "s", "measure": "top1", "headline": "h", "promotion_sha256": "0"}
    decided = PromoteResult.model_validate({"promoted": False, "floor": 0.8, **named, **result})
    entry = night(tmp_path, lambda notes: notes.answered(asked, decided, 1.0))
    assert entry.promotion == PromotionSummary(reference="s", floor=0.8, verdict=verdict, reason=reason)
