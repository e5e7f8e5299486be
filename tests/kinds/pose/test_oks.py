"""The figures of people are pycocotools' own and an independent PCK's to the last digit, with intervals, by image."""

from __future__ import annotations

import contextlib
import copy
import io
import json

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation, random_results, random_truth
from independent_pck import pck as independent
from pycocotools import coco
from pycocotools.cocoeval import COCOeval

from podline.data.letterbox import LetterBox
from podline.documents import intervals
from podline.documents.skeleton import COCO
from podline.kinds.pose import oks_intervals
from podline.kinds.pose.coco_results import people_to_results
from podline.kinds.pose.decoding import DecodedPeople
from podline.kinds.pose.document import PeopleFigures
from podline.kinds.pose.oks import (
    at_threshold,
    by_image,
    close_joints,
    joint_figures,
    judged,
    ranked,
    score_threshold,
)
from podline.kinds.pose.oks_intervals import FIGURES, drawn_figures, figures_within
from podline.kinds.pose.pck import pck


def pycocotools_figures(truth, results, folder):
    """The ten figures as anybody gets them: from two files, by pycocotools alone."""
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(json.dumps(results))
    with contextlib.redirect_stdout(io.StringIO()):
        annotations = coco.COCO(str(folder / "truth.json"))
        evaluation = COCOeval(annotations, annotations.loadRes(str(folder / "results.json")), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats.tolist()


def figures(truth, results):
    return judged(truth, results).stats.tolist()


def with_intervals(evaluation):
    return figures_within(evaluation, drawn_figures(evaluation))


POSE = np.full((17, 3), 2) + np.arange(17)[:, None] * [6, 9, 0]


def result(image=1, score=0.5, *, keypoints=POSE, shift=0.0):
    """A result with these keypoints, moved to the right."""
    moved = np.reshape(keypoints, (17, 3)) + np.array([shift, 0, 0])
    return {"image_id": image, "category_id": 1, "keypoints": moved.ravel().tolist(), "score": score}


def truth_of(*annotations, images=(1,)):
    return {
        "images": [{"id": number} for number in images],
        "annotations": list(annotations),
        "categories": CATEGORIES,
    }


PERSON = annotation(3, 1, POSE)
CROWD = annotation(7, 9, np.zeros((17, 3), int), iscrowd=1, bbox=[0, 0, 400, 400], area=90_000.0)


def three_people(results, *more):
    """An evaluation of three people of one pose, each in an image, and of a fourth image."""
    people = [annotation(number, number, POSE) for number in (1, 2, 3)]
    return judged(truth_of(*people, *more, images=(3, 1, 2, 9)), results)


@pytest.mark.parametrize("seed", range(8))
def test_figures_are_pycocotools_own_to_the_last_digit(seed, tmp_path, capsys):
    truth, rng = random_truth(seed), np.random.default_rng(seed)
    results = random_results(truth, seed)
    if seed > 5:  # with boxes of their own
        results = [{**found, "bbox": rng.uniform(1, 200, 4).tolist()} for found in results]
    before = copy.deepcopy((truth, results))
    ours = figures(truth, results)
    assert ((truth, results), capsys.readouterr().out) == (before, "")
    assert ours == pycocotools_figures(truth, results, tmp_path)


@pytest.mark.parametrize("ids", [range(-7, 99), [5, 0, 17, -1, *range(50, 99)]])
def test_ids_of_annotations_change_no_figure(ids):
    """pycocotools reads a match with the annotation of the id 0 as no match."""
    truth = random_truth(2)
    results = [
        result(person["image_id"], 1 - 0.01 * place, keypoints=person["keypoints"])
        for place, person in enumerate(truth["annotations"])
    ]
    people = [{**person, "id": new} for person, new in zip(truth["annotations"], ids, strict=False)]
    renumbered = truth | {"annotations": people}
    one, other = judged(renumbered, results), judged(truth, results)
    assert one.stats.tolist() == other.stats.tolist()
    assert joint_figures(one) == joint_figures(other)
    assert by_image(one, 0.0) == by_image(other, 0.0)


@pytest.mark.parametrize(
    "truth",
    [
        truth_of(),
        truth_of(images=()),
        truth_of(CROWD | {"image_id": 1}),
        truth_of(annotation(1, 1, np.zeros((17, 3)))),
    ],
    ids=["no people", "no images", "only a crowd", "only an unlabelled person"],
)
def test_nobody_to_find_is_minus_one_as_pycocotools_has_it(truth, tmp_path):
    assert set(figures(truth, [])) == {-1}
    assert with_intervals(judged(truth, [])) == {}
    if truth["images"]:
        assert figures(truth, [result()]) == pycocotools_figures(truth, [result()], tmp_path) == [-1] * 10
        assert close_joints(judged(truth, [result()])) == {}


def test_tables_by_joint():
    places = COCO.annotated.index
    wanted, found = POSE.copy(), POSE.astype(float)
    wanted[places("left_ear")] = found[places("right_hip")] = 0
    found[places("nose"), 0] += 30
    found[places("left_knee"), 0] += 3
    area = 10_000.0
    truth = truth_of(annotation(1, 1, wanted, area=area), annotation(2, 2, POSE), images=(1, 2))
    table = {joint.joint: joint for joint in joint_figures(judged(truth, [result(keypoints=found)]))}
    assert list(table) == list(COCO.annotated)
    assert (table["left_ear"].labelled, table["left_ear"].in_found, table["left_ear"].distance) == (1, 0, None)
    assert (table["nose"].labelled, table["nose"].in_found, table["nose"].close) == (2, 1, 0)
    assert table["nose"].distance == pytest.approx(0.3)
    assert table["right_hip"].distance is None
    assert table["left_knee"].distance == pytest.approx(0.03)
    assert table["left_knee"].similarity == pytest.approx(np.exp(-(3**2) / (2 * area * (2 * 0.087) ** 2)))
    assert table["left_wrist"].similarity == 1


def test_the_threshold_keeps_the_right_and_drops_the_wrong():
    truth = truth_of(*(annotation(number, number, POSE) for number in (1, 2, 3)), images=(1, 2, 3))
    right = [result(number, score) for number, score in ((1, 0.9), (2, 0.7), (3, 0.6))]
    wrong = [result(1, score, shift=400) for score in (0.5, 0.4, 0.3)]
    assert score_threshold(judged(truth, right + wrong)) == 0.6
    assert score_threshold(judged(truth, wrong)) is score_threshold(judged(truth, [])) is None
    # 0.6 is shared by one right and three wrong results, so the F1 measure is better without them all.
    assert score_threshold(judged(truth, [*right, *3 * [result(1, 0.6, shift=400)]])) == 0.7


class EveryImageOnce:
    """In place of random numbers: a draw that is every image once."""

    def integers(self, images, size):
        assert images == size
        return np.arange(size)


@pytest.mark.parametrize("seed", range(3))
def test_a_draw_of_every_image_once_has_pycocotools_figures(seed, monkeypatch):
    truth = random_truth(seed, images=12)
    evaluation = judged(truth, random_results(truth, seed))
    monkeypatch.setattr(oks_intervals.np.random, "default_rng", lambda _seed: EveryImageOnce())
    monkeypatch.setattr(intervals, "RESAMPLES", 1)
    metrics = with_intervals(evaluation)
    figures = dict(zip(FIGURES, evaluation.stats.tolist(), strict=True))
    assert set(metrics) == {name for name, value in figures.items() if value >= 0}
    assert len(metrics) >= 8
    for name, metric in metrics.items():
        assert metric.value == figures[name]
        assert metric.low == metric.high == pytest.approx(metric.value, abs=1e-12)


def test_intervals_hold_the_figure_and_narrow_with_more_images(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    truths = [random_truth(1, images=images) for images in (160, 10)]
    narrow, wide = (with_intervals(judged(truth, random_results(truth, 1)))["ap"] for truth in truths)
    for metric in (narrow, wide):
        assert metric.low <= metric.value <= metric.high
    assert 0 < narrow.high - narrow.low < 0.6 * (wide.high - wide.low)
    nothing_found = with_intervals(judged(truth_of(PERSON), []))
    assert (nothing_found["ap"].value, nothing_found["ap"].low, nothing_found["ap"].high) == (0, 0, 0)
    assert "ap_large" not in nothing_found


TORSO = ("left_shoulder", "right_hip")


def told(found):
    """All joints together and then each, as the independent computation has them."""
    return np.array(
        [[each.value, each.low, each.high] if each else [np.nan] * 3 for each in (found.whole, *found.joints)]
    )


@pytest.mark.parametrize("pair", [None, TORSO], ids=["box", "torso"])
@pytest.mark.parametrize("seed", range(4))
def test_pck_equals_an_independent_computation(seed, pair):
    truth, random = random_truth(seed, images=30), np.random.default_rng(seed)
    results = random_results(truth, seed)
    for result in results:
        pose = np.reshape(result["keypoints"], (-1, 3)) + random.normal(0, random.choice([0, 0, 30]), (17, 1))
        pose[random.random(17) < 0.2] = 0
        result["keypoints"] = pose.ravel().tolist()
    expected = independent(truth, results, pair and tuple(map(COCO.annotated.index, pair)), 1000)
    assert 0 < expected[0, 0] < expected[0, 2] < 1
    np.testing.assert_array_equal(told(pck(judged(truth, results), pair)), expected)


def test_people_become_results_in_the_images_own_pixels():
    letterbox = LetterBox(736, 368, 368)  # halved, 92 rows above
    poses = np.zeros((1, 18, 3), np.float32)
    poses[0, COCO.index["neck"]] = 1, 1, 1
    poses[0, COCO.index["left_wrist"]] = 99.5, 191.5, 0.75
    (found,) = people_to_results(DecodedPeople(poses, np.array([0.25], np.float32)), 42, letterbox, COCO)
    assert (found["image_id"], found["category_id"], found["score"]) == (42, 1, 0.25)
    keypoints = np.reshape(found["keypoints"], (17, 3))
    assert keypoints[COCO.annotated.index("left_wrist")].tolist() == [199.5, 199.5, 0.75]
    assert np.count_nonzero(keypoints) == 3
    assert json.loads(json.dumps(found)) == found


def test_quality_by_image_and_counts_above_a_threshold():
    found = [result(1), result(2, 0.9, shift=8), result(2, 0.5, shift=900), result(2, 0.1, shift=900)]
    first, second, third = by_image(three_people(found), threshold=0.5)
    assert (first.image_id, first.people, first.found, first.false_alarms) == (1, 1, 1, 0)
    assert first.quality == pytest.approx(1)
    assert (second.image_id, second.people, second.found, second.false_alarms) == (2, 1, 1, 1)
    assert 0.25 < second.quality < 0.5
    assert (third.image_id, third.found, third.quality) == (3, 0, 0)
    # A person in a crowd is no false alarm.
    in_crowd = [result(3, 0.9), result(3, 0.8, shift=120)]
    third = by_image(three_people(in_crowd, CROWD | {"image_id": 3}), 0.5)[2]
    assert (third.people, third.found, third.false_alarms) == (1, 1, 0)
    above = at_threshold(three_people(found), 0.5)
    assert (above.kept, above.right, above.people) == (3, 2, 3)
    assert (above.precision, above.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    nothing = at_threshold(three_people([]), 0.5)
    assert (nothing.precision, nothing.recall) == (0, 0)


def test_best_median_and_worst_are_different_images():
    def chosen(*qualities, shown):
        same = {"people": 1, "found": 0, "false_alarms": 0}
        images = [PeopleFigures(image_id=place, quality=each, **same) for place, each in enumerate(qualities)]
        parts = ranked(images, shown)
        return [[image.quality for image in part] for part in (parts.best, parts.median, parts.worst)]

    assert chosen(0.5, 0.9, 0.1, 0.7, 0.3, 0.8, 0.2, shown=2) == [[0.9, 0.8], [0.7, 0.5], [0.1, 0.2]]
    assert chosen(0.5, 0.4, shown=3) == [[0.5], [], [0.4]]
    assert chosen(shown=3) == [[], [], []]
