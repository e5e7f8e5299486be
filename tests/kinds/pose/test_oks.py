"""The figures of people, by COCO's own code: with intervals, by image, from files."""

from __future__ import annotations

import contextlib
import copy
import io
import json

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation, random_results, random_truth
from pycocotools import coco
from pycocotools.cocoeval import COCOeval

from podline.base.errors import SourceError
from podline.data.letterbox import LetterBox
from podline.documents.skeleton import COCO
from podline.kinds.pose import oks_intervals
from podline.kinds.pose.coco_results import check_results, people_to_results, read_truth
from podline.kinds.pose.decoding import DecodedPeople
from podline.kinds.pose.images import by_image, ranked
from podline.kinds.pose.oks import OksFigures, at_threshold, evaluate_results, judged
from podline.kinds.pose.oks_intervals import figures_within
from podline.kinds.pose.ranked_images import PeopleFigures


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
    return list(evaluate_results(truth, results).figures.model_dump().values())


def a_person(seed=0, size=100):
    keypoints = np.full((17, 3), 2)
    keypoints[:, :2] = 50 + np.random.default_rng(seed).integers(0, size, (17, 2))
    return keypoints


def result(keypoints, score=0.5, image=1, **more):
    return {"image_id": image, "category_id": 1, "keypoints": np.ravel(keypoints).tolist(), "score": score, **more}


def truth_of(*annotations, images=1):
    return {
        "images": [{"id": number + 1} for number in range(images)],
        "annotations": list(annotations),
        "categories": CATEGORIES,
    }


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


@pytest.mark.parametrize("ids", [range(99), range(-7, 99), range(-30, 999, 10), [5, 0, 17, -1, *range(50, 99)]])
def test_ids_of_annotations_change_no_figure(ids, tmp_path):
    """pycocotools reads a match with the annotation of the id 0 as no match."""
    truth = random_truth(2)
    results = [
        result(person["keypoints"], image=person["image_id"], score=1 - 0.01 * place)
        for place, person in enumerate(truth["annotations"])
    ]
    people = [{**person, "id": new} for person, new in zip(truth["annotations"], ids, strict=False)]
    renumbered = truth | {"annotations": people}
    counted = [{**person, "id": number} for number, person in enumerate(people, start=1)]
    expected = pycocotools_figures(truth | {"annotations": counted}, results, tmp_path)
    assert figures(renumbered, results) == expected
    again = evaluate_results(renumbered, results)
    assert again == evaluate_results(truth, results), "nor a figure of the tables"
    quality = [by_image(judged(each, results), 0.0) for each in (truth, renumbered)]
    assert quality[0] == quality[1]


@pytest.mark.parametrize(
    "truth",
    [
        truth_of(),
        truth_of(images=0),
        truth_of(annotation(1, 1, a_person(), iscrowd=1)),
        truth_of(annotation(1, 1, np.zeros((17, 3)))),
    ],
    ids=["no people", "no images", "only a crowd", "only an unlabelled person"],
)
def test_nobody_to_find_is_minus_one_as_pycocotools_has_it(truth, tmp_path):
    assert set(figures(truth, [])) == {-1}
    if truth["images"]:
        found = [result(a_person())]
        assert figures(truth, found) == pycocotools_figures(truth, found, tmp_path) == [-1] * 10
        assert evaluate_results(truth, found).people == 0


def test_tables_by_joint():
    wanted = a_person()
    wanted[COCO.annotated.index("left_ear")] = 0
    other = a_person(1)
    found = wanted.astype(float)
    found[COCO.annotated.index("nose"), 0] += 30
    found[COCO.annotated.index("right_hip")] = 0
    found[COCO.annotated.index("left_knee"), 0] += 3
    area = 10_000.0
    truth = truth_of(annotation(1, 1, wanted, area=area), annotation(2, 2, other), images=2)
    table = {joint.joint: joint for joint in evaluate_results(truth, [result(found)]).joints}
    assert list(table) == list(COCO.annotated)
    assert (table["left_ear"].labelled, table["left_ear"].in_found, table["left_ear"].distance) == (1, 0, None)
    assert (table["nose"].labelled, table["nose"].in_found, table["nose"].close) == (2, 1, 0)
    assert table["nose"].distance == pytest.approx(0.3)
    assert table["right_hip"].distance is None
    assert table["left_knee"].distance == pytest.approx(0.03)
    assert table["left_knee"].similarity == pytest.approx(np.exp(-(3**2) / (2 * area * (2 * 0.087) ** 2)))
    assert table["left_wrist"].similarity == 1


def test_the_threshold_keeps_the_right_and_drops_the_wrong():
    truth = truth_of(*(annotation(n + 1, n + 1, a_person(n)) for n in range(3)), images=3)
    right = [result(a_person(n), image=n + 1, score=score) for n, score in enumerate((0.9, 0.7, 0.6))]
    wrong = [result(a_person(9) + 400, image=1, score=score) for score in (0.5, 0.4, 0.3)]
    assert evaluate_results(truth, right + wrong).score_threshold == 0.6
    # 0.6 is shared by one right and three wrong results, so the F1 measure is better without them all.
    tied = [result(a_person(9) + 400, image=1, score=0.6) for _ in range(3)]
    assert evaluate_results(truth, right + tied).score_threshold == 0.7


def test_a_result_for_an_unknown_image_is_named():
    with pytest.raises(SourceError, match="1 images have no annotations, the first is image_id=7"):
        evaluate_results(truth_of(annotation(1, 1, a_person())), [result(a_person(), image=7)])


def undrawn(monkeypatch, evaluation):
    """The figures of a draw that is every image once."""
    monkeypatch.setattr(oks_intervals.np.random, "default_rng", lambda _seed: EveryImageOnce())
    return figures_within(evaluation, draws=1)


class EveryImageOnce:
    def integers(self, images, size):
        assert images == size
        return np.arange(size)


@pytest.mark.parametrize("seed", range(3))
def test_a_draw_of_every_image_once_has_pycocotools_figures(seed, monkeypatch):
    truth = random_truth(seed, images=12)
    evaluation = judged(truth, random_results(truth, seed))
    metrics = undrawn(monkeypatch, evaluation)
    figures = dict(zip(OksFigures.model_fields, evaluation.stats.tolist(), strict=True))
    assert set(metrics) == {name for name, value in figures.items() if value >= 0}
    assert len(metrics) >= 8
    for name, metric in metrics.items():
        assert metric.value == figures[name]
        assert metric.low == metric.high == pytest.approx(metric.value, abs=1e-12)


def test_intervals_hold_the_figure_and_narrow_with_more_images():
    truths = [random_truth(1, images=images) for images in (160, 10)]
    narrow, wide = (figures_within(judged(truth, random_results(truth, 1)), draws=200)["ap"] for truth in truths)
    for metric in (narrow, wide):
        assert metric.low <= metric.value <= metric.high
    assert 0 < narrow.high - narrow.low < 0.6 * (wide.high - wide.low)


def test_no_results_are_zero_within_zero_and_nobody_is_no_figure():
    person = annotation(1, 7, np.full((17, 3), 2) + np.arange(17)[:, None] * [6, 6, 0])
    truth = {"images": [{"id": 7}], "annotations": [person], "categories": CATEGORIES}
    metrics = figures_within(judged(truth, []), draws=10)
    assert (metrics["ap"].value, metrics["ap"].low, metrics["ap"].high) == (0, 0, 0)
    assert "ap_large" not in metrics
    assert figures_within(judged({**truth, "annotations": []}, []), draws=10) == {}
    assert figures_within(judged({**truth, "annotations": [], "images": []}, []), draws=10) == {}


GOOD = {"image_id": 1, "category_id": 1, "keypoints": [1] * 51, "score": 0.5}
PERSON = annotation(3, 1, np.full((17, 3), 2))


def truth_with(**changes):
    return {"images": [{"id": 1}], "annotations": [PERSON | changes], "categories": CATEGORIES}


def test_people_become_results_in_the_images_own_pixels():
    letterbox = LetterBox(736, 368, 368)  # halved, 92 rows above
    poses = np.zeros((1, 18, 3), np.float32)
    poses[0, COCO.index["neck"]] = 1, 1, 1
    poses[0, COCO.index["left_wrist"]] = 99.5, 191.5, 0.75
    (result,) = people_to_results(DecodedPeople(poses, np.array([0.25], np.float32)), 42, letterbox, COCO)
    assert (result["image_id"], result["category_id"], result["score"]) == (42, 1, 0.25)
    keypoints = np.reshape(result["keypoints"], (17, 3))
    assert keypoints[COCO.annotated.index("left_wrist")].tolist() == [199.5, 199.5, 0.75]
    assert np.count_nonzero(keypoints) == 3
    assert json.loads(json.dumps(result)) == result
    nobody = DecodedPeople(np.zeros((0, 18, 3), np.float32), np.zeros(0, np.float32))
    assert people_to_results(nobody, 1, letterbox, COCO) == []


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"results": []}, "a list is needed, found dict"),
        ([GOOD, 7], "result 1: an object is needed, found int"),
        ([GOOD | {"image_id": "1"}], "result 0: image_id is '1', an integer is needed"),
        ([GOOD, GOOD | {"keypoints": [1] * 50}], "result 1: keypoints: 50 values, 51 numbers are needed"),
        ([GOOD | {"keypoints": [1] * 50 + [float("nan")]}], "result 0: keypoints: nan is not a finite number"),
        ([GOOD | {"score": "high"}], "result 0: score: 'high' is not a finite number"),
        ([GOOD | {"bbox": [1, 2, 3, 4]}, GOOD], "result 1: bbox .*NoneType, 4 numbers are needed"),
    ],
)
def test_results_that_cannot_be_are_refused_by_name(results, message):
    with pytest.raises(SourceError, match=f"^people: .*{message}") as caught:
        check_results(results, "people", 17)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([], "not COCO annotations"),
        (truth_with(keypoints=[0] * 48), "annotation 3: keypoints: 48 values, 51 numbers are needed"),
        (truth_with(bbox=[0, 0, float("nan"), 1]), "annotation 3: bbox: nan is not a finite number"),
        (truth_with(num_keypoints=None), "annotation 0: num_keypoints is None, an integer is needed"),
    ],
)
def test_truth_that_cannot_be_is_refused_by_name(truth, message, tmp_path):
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(truth))
    with pytest.raises(SourceError, match=message) as caught:
        read_truth(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_not_json(tmp_path):
    with pytest.raises(SourceError, match=r"none\.json: cannot be read: No such file"):
        read_truth(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('[{"image_id": 1')
    with pytest.raises(SourceError, match=r"cut\.json: not JSON: "):
        read_truth(tmp_path / "cut.json")


POSE = np.full((17, 3), 2) + np.arange(17)[:, None] * [6, 9, 0]


def shifted(image, shift=0.0, score=0.9):
    keypoints = POSE.astype(float) + np.array([shift, 0, 0])
    return {"image_id": image, "category_id": 1, "keypoints": keypoints.ravel().tolist(), "score": score}


def evaluation(results, *more):
    truth = {
        "images": [{"id": number} for number in (3, 1, 2, 9)],
        "annotations": [*(annotation(number, number, POSE) for number in (1, 2, 3)), *more],
        "categories": CATEGORIES,
    }
    return judged(truth, results)


def test_quality_by_image():
    found = [shifted(1), shifted(2, shift=8), shifted(2, shift=900, score=0.8), shifted(2, shift=900, score=0.1)]
    first, second, third = by_image(evaluation(found), threshold=0.5)
    assert (first.image_id, first.people, first.found, first.false_alarms) == (1, 1, 1, 0)
    assert first.quality == pytest.approx(1)
    assert (second.image_id, second.people, second.found, second.false_alarms) == (2, 1, 1, 1)
    assert 0.25 < second.quality < 0.5
    assert (third.image_id, third.found, third.quality) == (3, 0, 0)
    assert [image.quality for image in by_image(evaluation([]), 0.5)] == [0, 0, 0]


def test_people_who_do_not_count_and_those_who_find_them():
    crowd = annotation(7, 9, np.zeros((17, 3), int), iscrowd=1, bbox=[0, 0, 400, 400], area=90_000.0)
    assert [image.image_id for image in by_image(evaluation([shifted(9)], crowd), 0.5)] == [1, 2, 3]
    in_image_3 = {**crowd, "image_id": 3}
    figures = by_image(evaluation([shifted(3), shifted(3, shift=120, score=0.8)], in_image_3), 0.5)[2]
    assert (figures.people, figures.found, figures.false_alarms) == (1, 1, 0)


def images(*qualities):
    return [
        PeopleFigures(image_id=number, people=1, found=0, false_alarms=0, quality=quality)
        for number, quality in enumerate(qualities)
    ]


def test_best_median_and_worst_are_different_images():
    chosen = ranked(images(0.5, 0.9, 0.1, 0.7, 0.3, 0.8, 0.2), shown=2)
    assert [image.quality for image in chosen.best] == [0.9, 0.8]
    assert [image.quality for image in chosen.worst] == [0.1, 0.2]
    assert [image.quality for image in chosen.median] == [0.7, 0.5]
    few = ranked(images(0.5, 0.4), shown=3)
    assert [[image.quality for image in part] for part in (few.best, few.median, few.worst)] == [[0.5], [], [0.4]]
    assert ranked([]).best == ()


def test_results_below_a_threshold_do_not_count():
    found = [shifted(1), shifted(2, score=0.4), shifted(2, shift=900, score=0.6), shifted(3, shift=900, score=0.2)]
    all_of_them, without = (at_threshold(evaluation(found), score) for score in (0.0, 0.5))
    assert (all_of_them.kept, all_of_them.right, all_of_them.people) == (4, 2, 3)
    assert (without.kept, without.right, without.people) == (2, 1, 3)
    assert (without.precision, without.recall) == (0.5, pytest.approx(1 / 3))
    nothing = at_threshold(evaluation([]), 0.5)
    assert (nothing.precision, nothing.recall) == (0, 0)
