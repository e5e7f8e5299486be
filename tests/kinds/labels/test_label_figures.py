"""The loss, the figures and the promotion of several labels, against their definitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.champions.rules import checks_of
from podline.contract.rules import Compared, ModelCost
from podline.documents.promotion import Check
from podline.kinds.by_example.estimate import Estimate
from podline.kinds.labels.objective import LabelsObjective
from podline.kinds.labels.precision import average_precision, best_threshold, f1
from podline.kinds.labels.scores import Scores
from podline.recipes import measures
from podline.recipes.measures import Measure
from podline.recipes.parts import Loaded
from podline.recipes.promotion_settings import PromotionSettings

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 0.0, 4.0]], np.float32)
LABELS = np.array([[1, 0, 0], [0, 0, 1]], np.uint8)
BATCH = {"labels": LABELS}
Bits, Scored = npt.NDArray[np.bool_], npt.NDArray[np.float32]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropies_of_the_labels_are_added_up_and_answers_counted(smoothing: float) -> None:
    shares, targets = 1 / (1 + np.exp(-LOGITS)), LABELS * (1 - smoothing) + smoothing / 2
    expected = -(targets * np.log(shares) + (1 - targets) * np.log(1 - shares)).sum(axis=1)
    objective = LabelsObjective(smoothing)
    assert objective.fields == ("image", "labels")
    [(name, losses)] = objective.terms(BATCH, tf.constant(LOGITS)).items()
    assert name == "cross_entropy"
    assert losses.numpy() == pytest.approx(expected, rel=1e-6)
    hard = LabelsObjective().terms(BATCH, tf.constant(LOGITS))[name].numpy()
    assert objective.evaluated.terms(BATCH, tf.constant(LOGITS))[name].numpy() == pytest.approx(hard)
    correct = objective.measures(BATCH, tf.constant(LOGITS))["correct"].numpy()
    assert correct == pytest.approx([2 / 3, 1.0])
    assert objective.figures({"correct": float(correct.sum())}, 2) == {"accuracy": pytest.approx(5 / 6)}


def answers(seed: int, images: int = 60) -> tuple[Bits, Scored]:
    """Labels and scores that have to do with them; of every other seed with many ties."""
    random = np.random.default_rng(seed)
    labels = random.random(images) < random.uniform(0.05, 0.9)
    labels[0] = True
    scores = (random.normal(size=images) + labels).astype(np.float32)
    return labels, np.round(scores, 1) if seed % 2 else scores


def f1_of(labels: Bits, named: Bits, weights: object = 1.0) -> float:
    """The harmonic mean of precision and recall."""
    weighed = np.ones(len(labels)) * weights
    precision, recall = ((weighed * (named & labels)).sum() / (weighed * each).sum() for each in (named, labels))
    return float(2 * precision * recall / (precision + recall))


def sum_over_thresholds(labels: Bits, scores: Scored, weights: object = 1.0) -> float:
    """The definition: the sum over thresholds of the rise in recall times the precision."""
    weighed, recall, found = np.ones(len(labels)) * weights, 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        named = scores >= threshold
        right = (weighed * (named & labels)).sum()
        rise, recall = right / (weighed * labels).sum() - recall, right / (weighed * labels).sum()
        found += rise * right / (weighed * named).sum()
    return float(found)


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_is_the_sum_over_thresholds_and_an_influence_what_a_weight_does(seed: int) -> None:
    labels, scores = answers(seed)
    assert average_precision(labels, scores).value == pytest.approx(sum_over_thresholds(labels, scores), abs=1e-12)
    named, more = scores > 0.4, 1e-6
    for image in range(0, len(labels), 7):
        weights = np.ones(len(labels))
        weights[image] += more
        for found, of, told in (
            (average_precision(labels, scores), sum_over_thresholds, scores),
            (f1(labels, named), f1_of, named),
        ):
            rise = of(labels, told, weights) - of(labels, told)  # type: ignore[operator]
            assert found.influence[image] == pytest.approx(rise / more, abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_has_a_higher_f1(seed: int) -> None:
    labels, scores = answers(seed)
    best = best_threshold(labels, scores)
    highest = max(f1(labels, scores >= each).value for each in scores)
    assert f1(labels, scores >= best).value == pytest.approx(highest)
    assert best not in scores or best == scores.min(), "a threshold lies between scores"


def test_intervals_hold_the_true_figure() -> None:
    # Of 300 images 60 are positives, whose scores lie 1.5 deviations above the others': AP 0.64 in a million.
    random, held = np.random.default_rng(0), 0
    labels = random.random(1_000_000) < 0.2
    true = average_precision(labels, random.normal(size=len(labels)) + 1.5 * labels).value
    for _ in range(200):
        labels = random.random(300) < 0.2
        metric = average_precision(labels, random.normal(size=300) + 1.5 * labels).metric()
        held += metric.low <= true <= metric.high
    assert 0.90 <= held / 200 <= 0.99
    few = np.array([1, 1, 1, 0, 0], bool)
    perfect = average_precision(few, few * 1.0).metric()
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(0.4385, abs=1e-4), "Wilson's of 3 of 3"


RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.random((3_000, 4)) < np.array([0.01, 0.1, 0.3, 0.5])
HARD = RANDOM.normal(size=TRUTH.shape)  # the same images are hard for every model


def model(seed: int, skill: float = 2.0, broken: int = -1) -> Scores:
    """Answers of a training; those of one label may be bad."""
    random, skills = np.random.default_rng(seed), np.full(4, skill)
    skills[broken] = 0.5 if broken >= 0 else skill
    logits = TRUTH * skills + HARD + 0.6 * random.normal(size=TRUTH.shape) - 1
    return Scores.of_logits(logits.astype(np.float32), TRUTH, np.full(4, 0.5))


def checks(candidate: Scores, **settings: object) -> dict[str, Check]:
    known, names, costs = [model(seed) for seed in range(5)], ("rare", "some", "often", "half"), (ModelCost(1, 1),) * 2
    rules = PromotionSettings.model_validate(settings)
    return {check.name: check for check in checks_of(Compared("labels", known, candidate, names, costs), rules)}


@pytest.mark.usefixtures("few_draws")
def test_a_worse_model_is_refused_by_an_estimate_of_which_lower_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    def missed(scores: Scores) -> Estimate:
        found = scores.f1_micro()
        return Estimate(1 - found.value, -found.influence, found.positives)

    measure = Measure("missed", "missed", kind="labels", higher_is_better=False, compute=missed)
    loaded = Loaded({**{each.name: each for each in measures.SHIPPED}, "missed": measure}, ())
    monkeypatch.setattr(measures, "loaded", lambda: loaded)
    worse = model(13, skill=1.5)
    found = checks(worse, guards=("missed",))["missed"]
    assert (found.after, found.refused) == (pytest.approx(missed(worse).value), True)
    assert not checks(model(13, skill=2.4), guards=("missed",))["missed"].refused


def test_models_are_compared_on_images_without_any_label() -> None:
    none = Scores.of_logits(np.zeros((60, 2), np.float32), np.zeros((60, 2)), np.full(2, 0.5))
    [main] = checks_of(Compared("labels", [none, none], none, ("a", "b")), PromotionSettings())
    assert (main.name, main.before, main.after, main.refused) == ("mAP", 0.0, 0.0, False)


def test_an_equal_model_is_promoted_and_one_with_a_broken_label_or_a_worse_guard_refused() -> None:
    found = checks(model(10))
    assert found["mAP"].after == pytest.approx(model(10).mean_precision().value)
    assert not any(check.refused for check in found.values())
    assert all(check.shown for check in found.values() if check.rule in ("main", "class"))
    assert "rare" not in found, "fewer than 50 test images have it"
    found = checks(model(12, skill=2.4, broken=2))
    assert [name for name, check in found.items() if check.refused and check.rule == "class"] == ["often"]
    assert checks(model(13, skill=1.5), guards=("f1_micro",))["F1 over all labels"].refused
    message = "got top1, expected a measure of the kind labels: map, f1_micro, f1_macro, exact"
    with pytest.raises(SettingsError, match=message):
        checks(model(13), guards=("top1",))
