"""Where a run stands among the nights before it, and that every figure on its page is the documents' own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_nights import decided, entered, finished_nights
from finished_run import NOON, finished_run
from ledger_entries import DAY, night, outcome
from support.guessed import guesses_of

from podline.base.figures import duration, rate
from podline.base.progress import Event, Reporter, silent
from podline.compare.words import ChanceCase, word_of
from podline.documents.completion import read_completion
from podline.documents.manifest import read_manifest
from podline.kinds.classification.guesses import Guesses
from podline.ledger import ledger
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.recording import plain
from podline.recipes.durations import Duration
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import metric_text
from podline.report.facts import gather
from podline.report.report import report
from podline.report.standing import NIGHTS, RunStanding
from podline.stages.specs import ReportSpec, TrainResult
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers")


def _standing(spec: ReportSpec) -> RunStanding:
    return gather(open_store(spec.root), spec, silent()).standing


def test_what_is_no_night_before_does_not_count(tmp_path: Path) -> None:
    spec, other = finished_run(tmp_path, seed=1), finished_run(tmp_path, seed=2)
    store = open_store(tmp_path)
    assert _standing(spec) == RunStanding()
    settings = {"recipe": plain(training_of(store, spec.run).recipe)}
    ledger.publish(store, night(-1, settings=settings))
    gone = _standing(spec)
    assert (len(gone.nights), gone.rival) == (1, None), "a run whose files are gone is a night, but no rival"
    store.delete(ledger.file_of(ledger.names(store)[0].name))
    entered(other, NOON - DAY)
    entered(other, NOON - DAY / 2)  # found done: the same model once more
    entered(spec, NOON - DAY / 3)  # an earlier night of this very run
    entered(finished_run(tmp_path, seed=3), NOON + DAY)  # a later one
    ledger.publish(store, night(-2, state="failed"))
    ledger.publish(store, night(-2, recipe="mnist"))
    ledger.publish(store, night(-2, outcome=outcome(0.5, measure="ap", metrics={"ap": outcome(0.5).main})))
    assert [entry.run for entry in _standing(spec).nights] == [other.run]


def test_what_a_person_started_with_other_settings_is_no_night_before(tmp_path: Path) -> None:
    before, by_hand, same, spec = (finished_run(tmp_path, seed=seed) for seed in range(4))
    longer = training_of(open_store(tmp_path), by_hand.run).recipe.model_copy(update={"duration": Duration(epochs=99)})
    hand: dict[str, Any] = {"started": "hand", "schedule": ""}
    for run, days, changes, role in (
        (by_hand, 2, {"settings": {"recipe": plain(longer)}, **hand}, "run before"),
        (same, 5, hand, "run before"),  # with the same settings, though no night
        (before, 6, {}, "night before"),
    ):
        entered(run, NOON - days * DAY, **changes)
        standing = _standing(spec)
        assert (standing.role, standing.rival.comparison.against) == (role, run.run)
        shown = [entry.run for entry in standing.nights]
        assert shown == ([] if run == by_hand else [run.run])


@pytest.mark.parametrize("file", ["evaluation.json", "guesses.npz", "stages/train.json", "its entry"])
def test_damage_of_the_run_before_is_told_and_ends_no_report(tmp_path: Path, file: str) -> None:
    before, spec = (finished_run(tmp_path, seed=seed, records=200) for seed in (0, 1))
    store = open_store(tmp_path)
    for each, right in ((before, 180), (spec, 60)):
        _guessed(each, np.arange(200) < right)
    entered(before, NOON - DAY)
    damaged = ledger.file_of(ledger.names(store)[0].name) if file == "its entry" else f"{before.folder}/{file}"
    store.publish_bytes(damaged, b"torn", replace=True)
    told: list[Event] = []
    gather(store, spec, Reporter("report", told.append))
    assert any(damaged.split("/")[1] in event["message"] for event in told if event.get("level") == "warning")


def _guessed(spec: ReportSpec, right: np.ndarray) -> None:
    labels = np.zeros(len(right), np.int64)
    guesses = guesses_of(labels, np.where(right, 0, 1))
    open_store(spec.root).publish_bytes(f"{spec.folder}/{Guesses.file}", guesses.to_bytes())


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(("gained", "word"), [(40, "better"), (2, "noise"), (-40, "worse")])
def test_on_the_same_examples_what_only_one_got_right_decides(tmp_path: Path, gained: int, word: str) -> None:
    before, now = finished_run(tmp_path, seed=1, records=200), finished_run(tmp_path, seed=2, records=200)
    entered(before, NOON - DAY)
    fewer, more = np.arange(200) < 100, np.arange(200) < 100 + abs(gained)
    _guessed(before, fewer if gained > 0 else more)
    _guessed(now, more if gained > 0 else fewer)
    rival = _standing(now).rival
    assert rival.comparison.word == word
    assert rival.comparison.difference.paired
    assert (rival.comparison.difference.gained, rival.comparison.difference.lost) == (max(gained, 0), max(-gained, 0))
    if word == "worse":
        assert word_of("loss", 0.2, ChanceCase.BEYOND) == word, "less is better"
        text = re.sub(r"<[^>]+>", "", open_store(now.root).local(report(now, silent()).html).read_text())
        assert "20.0 points worse than the night before, with another seed." in text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_reference_comes_before_the_night_before_and_a_refusal_says_why(tmp_path: Path) -> None:
    champion, last, now = (finished_run(tmp_path, seed=seed, accuracy=0.5 + seed / 10) for seed in (1, 2, 3))
    entered(champion, NOON - 2 * DAY)
    entered(last, NOON - DAY)
    refused = decided(now, champion.run, ["cat", "dog"])
    standing = _standing(refused)
    assert (standing.role, standing.rival.comparison.against) == ("reference", champion.run)
    result = report(refused, silent())
    page = open_store(now.root).local(result.html).read_text()
    assert "better than the reference, with another seed, refused as champion for cat, dog." in page
    assert "<li>cat: &lt;worse&gt;</li>" in page
    assert re.search(r"The reference has \d+\.\d %\.", page), "the chart has a line for it"
    assert f"{champion.run} stays" in open_store(now.root).local(result.markdown).read_text()
    assert _standing(now).promotion is None, "a report that nobody asked to tell of it does not"
    assert _standing(now).role == "night before"


def _text(page: str) -> str:
    """What a reader sees of a page, a line for each cell and paragraph."""
    lines = re.sub(r"</?span[^>]*>|</?b>", "", page).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"(<[^>]+>\s*)+", "\n", lines)


def test_a_page_has_the_last_seven_nights_and_the_figures_of_the_documents(tmp_path: Path) -> None:
    """Nine nights, the last one yesterday's noon, and tonight's run, which has no entry yet."""
    specs, store = finished_nights(tmp_path), open_store(tmp_path)
    store.delete(ledger.file_of(ledger.names(store)[0].name))
    spec = specs[-1]
    standing = _standing(spec)
    assert [entry.run for entry in standing.nights] == [each.run for each in specs[-1 - NIGHTS : -1]]
    assert (standing.role, standing.rival.comparison.against) == ("night before", specs[-2].run)
    page = store.local(report(spec, silent()).html).read_text()
    found, rival = (read_evaluation(store, each.folder).trained.metrics["top1"] for each in (spec, specs[-2]))
    trained = TrainResult.model_validate(read_completion(store, spec.folder, "train").result)
    [records] = [split.records for split in read_manifest(store, spec.dataset_folder).splits if split.name == "train"]
    lines = _text(page)
    top = lines.split("\nall nights\n")[1].replace("\n", "")
    assert top.startswith(metric_text("top1", found))
    assert f"{trained.epochs:.4g} epochs of {records} images." in lines
    assert f", {metric_text('top1', rival)}: " in lines
    assert f"\ntraining\n{duration(trained.seconds)}\n" in lines
    assert f"{rate(trained.examples_per_second)} examples/s" in lines
