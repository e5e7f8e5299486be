from __future__ import annotations

import math

import numpy as np
import pytest
from coco_people import random_results, random_truth
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.cocoeval import COCOeval
from support.guessed import guesses_of

from podline.documents.skeleton import COCO
from podline.evaluation import differences
from podline.evaluation.differences import Difference, ShareChange, sampled_change
from podline.intervals import Z, guessing_interval, mean_interval, wilson_interval
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.pairs import moved_classes
from podline.kinds.pose import lost_people
from podline.kinds.pose.lost_people import moved_joints
from podline.kinds.pose.oks import CloseJoints, judged
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


WRIST = COCO.annotated.index("left_wrist")


def guesses(right: list[bool]) -> Guesses:
    labels = np.array([0, 0, 0, 1])
    return guesses_of(labels, np.where(right, labels, 7))


def test_classes_that_nobody_has_are_left_out() -> None:
    moved = moved_classes(guesses([True, True, False, True]), guesses([True, False, False, True]), ["a", "b", "c"])
    assert moved == {
        "a": ShareChange(2 / 3, 1 / 3, sampled_change(np.array([-1, 0, 0]), 3)),
        "b": ShareChange(1.0, 1.0, sampled_change(np.array([0]), 1)),
    }


def person(image: int, close: bool) -> CloseJoints:
    labelled = np.arange(17) == WRIST
    return CloseJoints(image, labelled, labelled & close, 1)


def test_people_of_one_image_count_as_one_change_of_a_joint() -> None:
    # In image 1 two are lost and one is gained; in image 2 one is lost and one gained; image 3 gains one.
    was = {1: (1, True), 2: (1, True), 3: (1, False), 4: (2, True), 5: (2, False), 6: (3, False)}
    now = {1: (1, False), 2: (1, False), 3: (1, True), 4: (2, False), 5: (2, True), 6: (3, True)}
    sides = ({number: person(*told) for number, told in side.items()} for side in (was, now))
    assert moved_joints(*sides, COCO.annotated) == {
        "left_wrist": ShareChange(0.5, 0.5, sampled_change(np.array([-1, 0, 1]), 6))
    }


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe: "Two-sided confidence intervals for the single proportion", Statistics in Medicine 1998, table I,
        # method 3 (score without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_published_one(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson_interval(successes, trials)
    assert found.value == successes / trials
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)  # the table has four digits


def test_nothing_is_known_without_trials() -> None:
    found = wilson_interval(0, 0)
    assert (found.value, found.low, found.high) == (0, 0, 1)


@pytest.mark.parametrize(
    ("counts", "share", "half"), [([1000] * 10, 0.1, 0.00588), ([900, 50, 50], 0.9, 0.01859), ([0, 7], 1.0, 0.0)]
)
def test_guessing_names_the_most_frequent_class(counts: list[int], share: float, half: float) -> None:
    found = guessing_interval(counts)
    assert (found.value, found.low, found.high) == pytest.approx((share, share - half, share + half), abs=5e-6)


def test_a_mean_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 6.0])
    half = Z * math.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))
    alone = mean_interval([2.5])
    assert (alone.value, alone.low, alone.high) == (2.5, 2.5, 2.5)
