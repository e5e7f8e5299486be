"""Searches: what is tried, what is remembered, and that a killed one goes on as if nothing had happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dying_runs import Killed
from metrics import train_result
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.errors import ArtifactError, DivergenceError, PrunedError, SettingsError
from podline.base.progress import Reporter, silent
from podline.documents.log_writers import MetricsLog
from podline.documents.metrics_log import METRICS, EarlyStopLine, EvaluationLine
from podline.ledger.inventory import verification
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import FitSettings, ScheduleSettings
from podline.search.page import page
from podline.search.proposing import limits, next_values
from podline.search.searching import search, search_spec
from podline.search.spaces import Space, spaces_of
from podline.search.trials import SearchDocument, SearchSpec, Trial, measured, read_search
from podline.search.verdict import judged
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.decisions import Pruner

OVER = ("learning_rate=log:0.0001..1", "optimizer.kind=sgd,adam")
RECIPE = small_recipe(
    batch_size=16,
    duration=Duration(epochs=2),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.0002),
    validation_share=0.25,
    deterministic=True,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    publish_dataset(tmp_path)
    return open_store(str(tmp_path))


def spec_of(store: Store, *, over: tuple[str, ...] = OVER, trials: int = 8, minutes: float = 0.0, **recipe: Any) -> Any:
    return search_spec(store, RECIPE.changed(**recipe), over, silent(), trials=trials, minutes=minutes)


def evaluation(step: int, error: float) -> EvaluationLine:
    figures = {"examples": 1000, "loss": error, "accuracy": 1 - error, "seconds": 0.1, "time": 0.0}
    return EvaluationLine.model_validate({"step": step, "epoch": step / 10, "split": "validation", **figures})


def bowl(spec: TrainSpec) -> float:
    """The error of a trial that is not really trained: the best rate is 0.03."""
    distance = abs(math.log10(spec.recipe.schedule.learning_rate / 0.03))
    return 0.05 + 0.1 * distance + (0.02 if spec.recipe.optimizer.kind == "sgd" else 0.0)


class Trainer:
    """Writes the lines of trainings that take no time, each with four evaluations, and remembers which there were."""

    def __init__(self, store: Store, error: Callable[[TrainSpec], float] = bowl, seconds: float = 1.0) -> None:
        self.runs: list[str] = []
        self._store, self._error, self._seconds = store, error, seconds

    def __call__(self, spec: TrainSpec) -> TrainResult:
        self.runs.append(spec.run)
        pruner, file = Pruner(spec.pruning, 40, ()), self._store.local(f"{spec.folder}/{METRICS}")
        file.unlink(missing_ok=True)
        with MetricsLog(file) as log:
            for number in range(1, 5):
                line = evaluation(10 * number, self._error(spec) + 0.2 / number)
                log.write(line)
                pruner.decide(line)
                if pruner.reason:
                    raise PrunedError(pruner.reason)
        return train_result(spec, "0" * 64, steps=40, seconds=self._seconds)


def test_a_search_begins_with_the_recipe_itself_and_finds_what_is_better(store: Store) -> None:
    spec, trainer = spec_of(store, trials=16), Trainer(store)
    found = search(store, spec, trainer, silent())
    trials = read_search(store, spec).trials
    assert [trial.number for trial in trials] == list(range(16))
    assert trials[0].values == {"schedule.learning_rate": 0.0002, "optimizer.kind": "sgd"}
    assert [trial.run for trial in trials] == trainer.runs
    assert 16 - found.trials["complete"] == found.trials["pruned"] >= 2
    best = min((trial for trial in trials if trial.value is not None), key=lambda trial: trial.value or 0)
    assert (found.run, found.values, found.better) == (best.run, best.values, True)
    assert best.values["optimizer.kind"] == "adam"
    assert 0.005 < float(str(best.values["schedule.learning_rate"])) < 0.2
    assert [problem for problem in verification.verify(store, silent()).problems if "searches/" in problem] == []
    page = store.read_bytes(found.page).decode()
    assert all(trial.run in page for trial in trials)
    assert f"podline train {best.run} --set validation_share=0" in page


def test_a_killed_search_ends_like_another_and_more_trials_go_on_where_fewer_ended(
    store: Store, tmp_path: Path
) -> None:
    def remembered(store: Store, spec: SearchSpec) -> list[Trial]:
        return [trial.changed(seconds=0.0) for trial in read_search(store, spec).trials]

    few, whole = spec_of(store, trials=5), spec_of(store)
    assert few.folder == whole.folder
    search(store, few, Trainer(store), silent())
    search(store, whole, trainer := Trainer(store), silent())
    assert len(trainer.runs) == 3
    publish_dataset(tmp_path / "killed")
    other = open_store(str(tmp_path / "killed"))

    class Dying(Trainer):
        def __call__(self, spec: TrainSpec) -> TrainResult:
            result = super().__call__(spec)
            if len(self.runs) == 3:
                raise Killed
            return result

    for _ in range(2):
        with pytest.raises(Killed):
            search(other, spec_of(other), Dying(other), silent())
    search(other, spec_of(other), Trainer(other), silent())
    assert remembered(other, spec_of(other)) == remembered(store, whole)


def test_minutes_begin_no_trial_that_would_not_fit(store: Store) -> None:
    trainer = Trainer(store, seconds=20.0)
    search(store, spec_of(store, trials=2), trainer, silent())
    found = search(store, spec_of(store, trials=9, minutes=0.9), trainer, silent())
    assert len(trainer.runs) == 2, "40 s of 54 are gone, and a trial takes 20"
    assert found.ending == "the next trial, of up to 20 s, does not fit into 0.9 minutes"
    search(store, spec_of(store, trials=3, minutes=1.1), trainer, silent())
    assert len(trainer.runs) == 3


def test_values_that_cannot_be_trained_are_a_failed_trial_and_the_recipe_itself_an_error(store: Store) -> None:
    def fails(spec: TrainSpec) -> float:
        if spec.recipe.optimizer.kind == "adam":
            raise DivergenceError("the loss is nan at step 3")
        return bowl(spec)

    spec = spec_of(store, trials=6)
    found = search(store, spec, Trainer(store, fails), silent())
    failed = [trial for trial in read_search(store, spec).trials if trial.state == "failed"]
    assert found.trials["failed"] == len(failed) > 0
    assert {trial.cause for trial in failed} == {"the loss is nan at step 3"}
    with pytest.raises(DivergenceError):
        search(store, spec_of(store, optimizer={"kind": "adam"}), Trainer(store, fails), silent())
    store.publish_json(f"{spec.folder}/search.json", {"trials": 3}, replace=True)
    with pytest.raises(ArtifactError, match=r"search\.json is not a record of a search"):
        search(store, spec, Trainer(store), silent())


def test_a_space_of_few_values_is_exhausted_and_trials_take_the_time_that_passed(store: Store) -> None:
    def slow(_spec: TrainSpec) -> float:
        time.sleep(0.05)
        return 0.5

    spec = spec_of(store, over=("optimizer.kind=sgd,adam,rmsprop",), trials=9)
    found = search(store, spec, Trainer(store, slow, seconds=0.01), silent())
    trials = read_search(store, spec).trials
    assert len(trials) == 3
    assert all(trial.seconds >= 0.05 for trial in trials), "the time that passed, and not that of the steps"
    assert "seem to have been tried" in found.ending


@pytest.mark.parametrize(("errors", "examples"), [((0.20, 0.15), 200), ((0.20, 0.15), 20_000), ((0.15, 0.20), 20_000)])
def test_a_difference_that_chance_explains_is_not_called_better(
    store: Store, errors: tuple[float, ...], examples: int
) -> None:
    values = {"schedule.learning_rate": 0.1, "optimizer.kind": "sgd"}
    trials = tuple(
        Trial(number=number, values=values, run=f"t-{number}", state="complete", value=error, examples=examples)
        for number, error in enumerate((*errors, 0.3))
    )
    found = judged(read_search(store, spec_of(store)).changed(trials=trials))
    assert errors[found.best.number] == 0.15
    assert found.better is (errors[0] > errors[1] and examples > 200)
    assert ("5.0 points [" if found.best.number else "no better than the default") in found.text


# A part that a recipe holds out of many images only.
USUAL_PART = FitSettings(least_validation=100)


@pytest.mark.parametrize("own", [{"validation_share": 0.0}, {"validation_share": 0.05, "fit": USUAL_PART}])
def test_a_recipe_that_holds_out_too_little_holds_out_a_tenth_and_says_so(store: Store, own: dict[str, Any]) -> None:
    said: list[str] = []
    reporter = Reporter("search", lambda event: said.append(event["message"]))
    spec = search_spec(store, RECIPE.changed(**own), OVER, reporter, trials=2)
    assert spec.recipe.validation_share == 0.1
    assert not spec.recipe.fit or not spec.recipe.fit.least_validation, "also of few images"
    assert said == ["validation_share=0.1: trials are compared by held-out examples, never by the test split"]
    with pytest.raises(SettingsError, match="got strategy=workers, a search trains in one process"):
        search_spec(store, RECIPE, OVER, silent(), strategy="workers", trials=2)


def test_the_next_values_depend_on_the_trials_and_the_seed_alone() -> None:
    spaces = (Space(path="x", low=0.0, high=1.0), Space(path="y", low=1, high=64, log=True))
    values = [{"x": number / 10, "y": 2**number} for number in range(6)]
    # A trial outside the spaces, as a recipe's own values may be, is no error.
    values.append({"x": 9.0, "y": None})
    trials = [Trial(number=at, values=each, state="complete", value=float(at)) for at, each in enumerate(values)]
    first = next_values(spaces, trials, 0)
    assert first == next_values(spaces, trials, 0)
    assert first not in (next_values(spaces, trials, 1), next_values(spaces, trials[:5], 0))
    assert isinstance(first["y"], int)


def test_limits_are_the_medians_of_complete_trials_after_the_first_quarter() -> None:
    def trial(number: int, *evaluations: float, complete: bool = True) -> Trial:
        state = "complete" if complete else "pruned"
        return Trial.model_validate({"number": number, "values": {}, "state": state, "evaluations": evaluations})

    trials = [trial(number, 9.0, 4.0 + number, 3.0 + number, 2.0) for number in range(4)]
    assert limits(trials[:3]) == ()
    assert limits([*trials, trial(4, 0.0, complete=False)]) == (None, 5.5, 4.5, 2.0)
    assert limits([*trials, trial(4, 9.0, 1.0)]) == (None, 5.0, 4.5, 2.0)


def test_the_value_of_a_trial_is_that_of_the_state_that_its_run_ends_with() -> None:
    lines = [evaluation(10, 0.2), evaluation(20, 0.3)]
    stop = {"step": 20, "value": 0.3, "best": 0.2, "state": 10, "stalled": 1, "stopped": True, "time": 0.0}
    for restored, value in ((True, 0.2), (False, 0.3)):
        assert measured([*lines, EarlyStopLine(**stop, restored=restored)], "error")["value"] == pytest.approx(value)


def test_a_recipe_value_of_zero_is_in_the_chart_of_a_logarithmic_range() -> None:
    space = Space(path="loss.label_smoothing", low=0.01, high=0.2, log=True)
    values = {"recipe": RECIPE, "fingerprint": FINGERPRINT, "manifest_digest": "0" * 64, "spaces": (space,)}
    trials = tuple(
        Trial(number=number, values={space.path: value}, state="complete", value=error, evaluations=(error,))
        for number, (value, error) in enumerate([(0.0, 0.1), (0.02, 0.2)])
    )
    document = SearchDocument(spec=SearchSpec(root="root", trials=2, **values), trials=trials)
    assert 'style="fill: var(--accent); stroke: var(--accent)"' in page(document, judged(document), ())


MNIST = registry.get("mnist")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schedule.learning_rate=log:1e-4..1", Space(path="schedule.learning_rate", low=1e-4, high=1, log=True)),
        ("learning_rate=.01..0.5", Space(path="schedule.learning_rate", low=0.01, high=0.5)),
        ("model.width=0.5,1", Space(path="model.width", choices=(0.5, 1))),
        ("optimizer.kind=sgd, adam,sgd", Space(path="optimizer.kind", choices=("sgd", "adam"))),
        ("batch_size=log:16..256", Space(path="batch_size", low=16, high=256, log=True)),
    ],
)
def test_a_space_is_what_is_written(text: str, expected: Space) -> None:
    assert spaces_of([text], MNIST) == (expected,)


def test_numbers_of_a_range_are_whole_between_whole_ones_and_else_have_few_digits() -> None:
    whole, real = spaces_of(["batch_size=16..256", "model.width=0.5..2"], MNIST)
    assert (whole.whole, real.whole) == (True, False)
    assert real.rounded(1.23456789) == 1.235
    assert Space(path="x", low=0.0, high=0.99996).rounded(0.999959) == 0.99996


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("coco_pose", "task.model.heatmap_stages=1,2"),
        ("labels", "loss.kind=cross_entropy,focal"),
    ],
)
def test_losses_of_different_formulas_are_not_compared(name: str, over: str) -> None:
    with pytest.raises(SettingsError, match=f"^--over {over.split('=', maxsplit=1)[0]}: trials of the kind .* change"):
        spaces_of([over], registry.get(name))
    others = {"coco_pose": "task.model.width=0.5..1", "labels": "task.label_smoothing=0..0.2"}
    assert spaces_of([others[name]], registry.get(name)), "a value beside the loss"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "got no value to search over"),
        (("schedule.learning_rate=0.1",), "expected PATH=LOW..HIGH"),
        (("schedule.learning_rate=log:0..1",), "expected PATH=LOW..HIGH"),
        (("optimizer.kind=sgd..adam",), "expected PATH=LOW..HIGH"),
        (("schedule.learning_rate=1..0.1",), "got 1 to 0.1, expected the lower end first"),
        (("model.width=0.5,1", "model.width=1..2"), "names model.width twice"),
        (("schedule.rate=0.1..1",), "a recipe has no 'schedule.rate'"),
        (("model.width=0..2",), r"model\.width = 0"),
        (("optimizer.kind=sgd,adma",), "adma"),
        (("validation_share=0.1,0.3",), "trials are compared on the same examples of one data set"),
        (("dataset=mnist,cifar10",), "trials are compared on the same examples of one data set"),
    ],
)
def test_what_cannot_be_a_space_is_refused(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        spaces_of(texts, MNIST)
