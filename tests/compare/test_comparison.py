"""Two runs beside each other: what is said of the difference of their results, and of what differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from finished_nights import entered
from finished_run import finished_run
from ledger_entries import DAY, NOON
from small_dataset import FINGERPRINT, drawn, publish_dataset
from support.guessed import guesses_of

from podline.base.errors import StoreError
from podline.base.progress import Reporter, silent
from podline.compare.comparison import compare, unpaired
from podline.compare.known import Evaluated, evaluated
from podline.compare.runs import compare_runs, lines
from podline.compare.settings import differing, in_headline
from podline.compare.words import ChanceCase
from podline.documents.ledger_entry import CodeVersion, Entry, PromotionSummary
from podline.documents.metric import Metric
from podline.documents.origins import ORIGIN, keep_origin, read_origin
from podline.kinds.classification.guesses import Guesses
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.recording import plain
from podline.recipes.durations import Duration
from podline.stages.specs import ReportSpec
from podline.store.contract import Store
from podline.store.opening import open_store

RECORDS, CLASSES = 600, 10
LABELS = np.sort(np.arange(RECORDS) % CLASSES)

OTHER = "fedcba9876543210"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def run(store: Store, seed: int, right: np.ndarray, **entry: Any) -> tuple[ReportSpec, Entry]:
    """A finished run that got some examples right and took the others for the next class."""
    spec = finished_run(Path(store.uri), seed=seed, records=RECORDS, accuracy=float(right.mean()))
    found = evaluated(store, spec.run).evaluation
    labels = np.repeat(np.arange(CLASSES), [each.examples for each in found.per_class])
    guesses = guesses_of(labels, np.where(right, labels, (labels + 1) % CLASSES))
    store.publish_bytes(f"{spec.folder}/{Guesses.file}", guesses.to_bytes())
    origin = read_origin(store, spec.folder)
    assert origin is not None
    made = {"environment": origin.environment, "code": origin.code, "data": origin.data}
    return spec, entered(spec, NOON + DAY * seed, **{**made, **entry})


def right_but(first: int) -> np.ndarray:
    return np.arange(RECORDS) >= first


def test_a_large_loss_is_no_matter_of_seeds_even_if_no_other_training_is_known(store: Store) -> None:
    (before, first), (after, second) = run(store, 1, right_but(0)), run(store, 2, right_but(340))
    found = compare(store, evaluated(store, before.run), evaluated(store, after.run), silent()).comparison
    assert (found.word, found.difference.chance) == ("worse", ChanceCase.BEYOND)
    assert (found.difference.gained, found.difference.lost) == (0, 340)
    assert found.headline() == (
        f"{after.run} is 56.7 points worse in accuracy than {before.run}, with another seed: more than seeds usually "
        f"do, by the assumed spread between seeds ([{found.difference.low * 100:.1f}, "
        f"{found.difference.high * 100:.1f}], on the same 600 examples: 0 gained, 340 lost)"
    ).replace("-", "\N{MINUS SIGN}").replace("cifar10\N{MINUS SIGN}", "cifar10-")
    assert [part.name for part in found.moved[:2]] == ["airplane", "automobile"]
    said = compare_runs(store, [first, second])
    assert said.verdicts == (found,)
    assert found.headline() in lines(said)


def test_more_trainings_of_the_recipe_are_the_other_side_whatever_their_commit_and_others_are_not(store: Store) -> None:
    wrong = {1: 61, 3: 63, 4: 64, 5: 500, 6: 500, 7: 500, 2: 60}
    changes: dict[int, dict[str, Any]] = {
        3: {"code": CodeVersion(version="1", commit="another", modules="m")},
        5: {"promotion": PromotionSummary(verdict="refused")},
        6: {"settings": {"recipe": {"seed": 6, "batch_size": 7, "name": "cifar10"}}},
        7: {"recipe": "cifar10-small"},
    }
    same = {"code": CodeVersion(version="1", commit="c", modules="m")}
    names = {}
    for seed, count in wrong.items():
        spec, entry = run(store, seed, right_but(count), **{**same, **changes.get(seed, {})})
        names[seed] = spec.run
        store.delete(f"{spec.folder}/{ORIGIN}")
        keep_origin(store, spec.folder, entry)
    found = compare(store, evaluated(store, names[1]), evaluated(store, names[2]), silent()).comparison
    assert set(found.known) == {names[1], names[3], names[4]}
    assert found.difference.measured
    assert found.difference.value == pytest.approx((61 + 63 + 64) / 3 / 600 - 60 / 600)
    assert "than the mean of 3 trainings like" in found.headline()
    assert found.difference.chance is ChanceCase.USUAL
    until = compare(
        store, evaluated(store, names[1]), evaluated(store, names[2]), silent(), NOON + 3.5 * DAY
    ).comparison
    assert set(until.known) == {names[1], names[3]}, "what ended later does not change what was said"


def test_what_cannot_be_compared_says_why_and_names_keep_their_ends(store: Store) -> None:
    (before, first), (after, second) = run(store, 1, right_but(0)), run(store, 2, right_but(50))
    told = list[Any]()
    for damage in (lambda name: store.publish_bytes(name, b"", replace=True), store.delete):
        damage(f"{before.folder}/{Guesses.file}")
        reporter = Reporter("compare", told.append)
        found = compare(store, evaluated(store, before.run), evaluated(store, after.run), reporter).comparison
        assert not found.difference.paired
        assert "guesses.npz" in found.why_unpaired
        # A file that was deleted on purpose is no news.
        assert [event["message"].partition(":")[0] for event in told] == [
            f"{before.run} is compared by its figures alone"
        ]
    shares = [Metric(value=value, low=value - 0.01, high=value + 0.01) for value in (0.90, 0.89, 0.34)]
    close, far = (unpaired("top1", [shares[0]], each, 4000, "classification", 10) for each in shares[1:])
    assert (close.chance, far.chance, far.measured) == (ChanceCase.USUAL, ChanceCase.BEYOND, False)
    assert far.method == "by the figures' intervals, since the examples differ"
    store.publish_json(f"runs/{after.run}/evaluation.json", {"run": "another"}, replace=True)
    words = compare_runs(store, [first, second, second.model_copy(update={"outcome": None})]).words
    assert "is no longer the evaluation of" in words[0]
    assert "cannot compare results: this run has no evaluation; run" in words[1]
    figure = {"measure": "years", "metrics": {"years": shares[0]}}
    unknown = [each.model_copy(update={"outcome": each.outcome.changed(**figure)}) for each in (first, second)]
    assert "no kind of task ranks models by years; install" in compare_runs(store, unknown).words[0]
    poses: Any = SimpleNamespace(measure="ap")
    one = evaluated(store, before.run)
    with pytest.raises(StoreError, match="one run's main measure is ap, the other's top1"):
        compare(store, one._replace(evaluation=poses), one, silent())
    long = [first.model_copy(update={"run": f"{'a_long_name_' * 6}-{end}", "outcome": None}) for end in ("abc", "def")]
    [row] = [line for line in lines(compare_runs(store, long)) if line.startswith("run ")]
    assert [name[-3:] for name in row.split()[1:]] == ["abc", "def"], "the ends of names tell runs apart"


def test_the_headline_names_what_can_change_a_result(store: Store) -> None:
    spec, entry = run(store, 0, right_but(0))
    recipe = training_of(store, spec.run).recipe.changed(duration=Duration(epochs=60), batch_size=128)

    def headline(**changes: Any) -> str:
        machine = [{"train_lock": "a", "pages": {"url": "x"}}, {"train_lock": "b", "pages": {"url": "y"}}]
        origins = [
            entry.model_copy(update={"settings": {"recipe": plain(each), "machine": other}})
            for each, other in zip((recipe, recipe.changed(**changes)), machine, strict=True)
        ]
        return in_headline(differing(origins, lambda *_: {}))

    assert headline(duration=Duration(epochs=3)) == "with 3 epochs in place of 60"
    assert headline(batch_size=7) == "with batch_size=7 in place of 128"
    assert headline(keep=9) == ""
    assert headline(seed=5) == "with another seed"


def test_each_example_meets_itself_in_another_order_and_new_ones_are_left_out(store: Store, tmp_path: Path) -> None:
    test = drawn(120, 1)
    publish_dataset(store.uri, splits={"train": drawn(20, 0), "test": test})
    random = np.random.default_rng(0)
    order, right = random.permutation(120)[:100], random.random((2, 120)) < 0.6
    template = finished_run(tmp_path / "template", records=40)

    def side(run: str, right: np.ndarray, labels: np.ndarray, of: str) -> Evaluated:
        """A run on the small data set with the guesses that its evaluation leaves."""
        found = evaluated(open_store(template.root), template.run)
        guesses = guesses_of(labels, np.where(right, labels, (labels + 1) % 4))
        store.publish_bytes(f"runs/{run}/{Guesses.file}", guesses.to_bytes())
        recipe = found.training.recipe.changed(name="s", dataset="sample")
        training = found.training.model_copy(update={"root": store.uri, "recipe": recipe, "fingerprint": of})
        document = found.evaluation.model_copy(update={"dataset": "sample", "fingerprint": of, "run": run})
        return Evaluated(training, f"runs/{run}", document)

    moved = {name: values[order] for name, values in test.items()}
    publish_dataset(store.uri, splits={"train": drawn(20, 5), "test": moved}, fingerprint=OTHER)
    before = side("a", right[0], test["label"], FINGERPRINT)
    after = side("b", right[1][order], moved["label"], OTHER)
    pairing = compare(store, before, after, silent())
    found = pairing.comparison
    assert found.why_unpaired == ""
    assert found.examples == "on 100 test examples that both data sets have, 0 are new"
    assert found.difference.lost == np.sum((right[0] & ~right[1])[order])
    publish_dataset(store.uri, splits={"train": drawn(20, 5), "test": drawn(120, 2)}, fingerprint="f" * 16)
    others = side("c", right[1], drawn(120, 2)["label"], "f" * 16)
    assert compare(store, before, others, silent()).comparison.why_unpaired.endswith("share no test examples")
    elsewhere = before._replace(evaluation=before.evaluation.model_copy(update={"split": "train"}))
    assert (
        "the test sets differ: one run was evaluated on sample train, the other on sample test"
        in compare(store, elsewhere, after, silent()).comparison.why_unpaired
    )
