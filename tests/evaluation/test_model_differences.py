from __future__ import annotations

import numpy as np
import pytest
from coco_people import random_results, random_truth
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.cocoeval import COCOeval

from podline.documents.metric import Metric
from podline.evaluation import differences
from podline.evaluation.differences import Difference
from podline.intervals import wilson_interval
from podline.kinds.pose import lost_people
from podline.kinds.pose.oks import judged
from podline.noise import Seeds

# Of a seed that does nothing, as many trainings show.
NONE = Seeds(0.0, 20)


def answers(both: int, lost: int, gained: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Who got which of some examples right: both models, the first alone, the second alone, none of them."""
    before = np.repeat([True, True, False, False], [both, lost, gained, neither])
    after = np.repeat([True, False, True, False], [both, lost, gained, neither])
    return before, after


def accuracies(*right: np.ndarray) -> Difference:
    return differences.accuracies(*right, NONE)


def test_what_was_gained_and_lost_is_told_beside_the_difference():
    found = accuracies(*answers(36, 2, 12, 0))
    assert (found.gained, found.lost, found.examples) == (12, 2, 50)
    assert found.value == pytest.approx(0.2)
    assert found.p_value == pytest.approx(2 * (1 + 14 + 91) / 2**14, abs=0.006), "McNemar's exact test"


@given(st.tuples(*[st.integers(0, 60)] * 4).filter(any))
def test_the_interval_holds_the_difference_and_never_leaves_what_can_be(counts):
    found = accuracies(*answers(*counts))
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert 0 < found.p_value <= 1


def test_equal_models_differ_beyond_noise_no_more_often_than_the_level():
    rng = np.random.default_rng(0)
    hard = rng.random(2000) < 0.3
    pairs = ([~hard | (rng.random(2000) < 0.4) for _model in range(2)] for _ in range(400))
    # Of 400 comparisons at most 20, and chance adds 8.
    assert sum(accuracies(*pair).chance != "noise" for pair in pairs) <= 28


def test_the_interval_holds_the_true_difference_as_often_as_it_says():
    rng = np.random.default_rng(1)
    drawn = (rng.multinomial(300, (0.8, 0.06, 0.04, 0.1)).tolist() for _ in range(1000))
    held = sum(found.low <= -0.02 <= found.high for found in (accuracies(*answers(*counts)) for counts in drawn))
    assert 925 < held < 980


def test_a_difference_that_the_seed_may_have_caused_is_no_fact():
    pair = answers(9000, 20, 80, 900)
    assert accuracies(*pair).chance == "beyond"
    assert differences.accuracies(*pair, Seeds(0.0, 1)).chance == "seed"
    assert differences.accuracies(*pair, Seeds(0.005**2, 20)).chance == "noise"


def test_the_same_examples_tell_what_two_intervals_do_not():
    before, after = answers(9000, 20, 60, 920)
    found = accuracies(before, after)
    assert found.chance == "beyond"
    apart = differences.unpaired(
        *(wilson_interval(int(right.sum()), 10_000) for right in (before, after)), 10_000, NONE
    )
    assert apart.value == pytest.approx(found.value)
    assert apart.chance == "noise"
    assert apart.low < found.low


def test_examples_of_two_numbers_are_refused():
    with pytest.raises(ValueError, match=r"\(3,\) vs \(2,\)"):
        accuracies(np.array([True, False, True]), np.array([True, False]))


def test_figures_without_intervals_differ_for_sure_or_not_at_all():
    sure = Metric(value=0.5, low=0.5, high=0.5), Metric(value=0.6, low=0.6, high=0.6)
    assert differences.unpaired(*sure, 10, NONE).p_value == 0
    assert differences.unpaired(sure[0], sure[0], 10, NONE).p_value == 1


def test_holms_chances_are_those_of_his_paper() -> None:
    chances = differences.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9})
    assert chances == pytest.approx({"a": 0.04, "b": 0.09, "c": 0.09, "d": 0.9})
    assert differences.holm({}) == {}


def average_precisions(before: COCOeval, after: COCOeval, draws: int = 20) -> dict[str, Difference]:
    return lost_people.average_precisions(before, after, {"ap": NONE}, draws=draws)


def test_a_network_and_itself_do_not_differ_in_ap():
    truth = random_truth(1, images=20)
    evaluation = judged(truth, random_results(truth, 1))
    found = average_precisions(evaluation, evaluation, draws=50)
    assert {name: (difference.value, difference.low, difference.high) for name, difference in found.items()} == (
        dict.fromkeys(found, (0.0, 0.0, 0.0))
    )
    assert found["ap"].p_value == 1.0


def test_people_that_are_no_longer_found_lower_ap_beyond_noise():
    truth = random_truth(2, images=40)
    results = random_results(truth, 2)
    kept = {image["id"] for image in truth["images"][::4]}
    worse = [found for found in results if found["image_id"] in kept]
    found = average_precisions(judged(truth, results), judged(truth, worse), draws=200)["ap"]
    assert found.value < 0
    assert found.high < 0
    assert found.chance == "beyond"
    # Every image is drawn for both: the interval is narrower than that of two networks that share nothing.
    apart = average_precisions(judged(truth, worse), judged(truth, results), draws=200)["ap"]
    assert (apart.value, apart.low, apart.high) == pytest.approx((-found.value, -found.high, -found.low))


def test_networks_on_other_images_are_refused():
    one, other = (random_truth(seed, images=images) for seed, images in ((1, 3), (1, 4)))
    with pytest.raises(ValueError, match="same images"):
        average_precisions(judged(one, []), judged(other, []))
