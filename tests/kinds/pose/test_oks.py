from __future__ import annotations

import contextlib
import copy
import io
import json

import numpy as np
import pytest
from coco_people import CATEGORIES, annotation, random_results, random_truth
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from podline.documents import skeleton
from podline.errors import SourceError
from podline.kinds.pose.coco_results import read_truth
from podline.kinds.pose.oks import evaluate_results


def pycocotools_figures(truth, results, folder):
    """The ten figures as anybody gets them: from two files, by pycocotools alone."""
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(json.dumps(results))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(folder / "truth.json"))
        evaluation = COCOeval(coco, coco.loadRes(str(folder / "results.json")), "keypoints")
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


def test_real_annotations_and_noisy_results(real_data, tmp_path):
    path = real_data / "coco" / "annotations" / "person_keypoints_train2017.json"
    if not path.is_file():
        pytest.skip(f"no COCO annotations at {path}")
    truth = read_truth(path)
    results = random_results(truth, 5)
    ours = figures(truth, results)
    assert 0.2 < ours[0] < 0.9
    assert ours == pycocotools_figures(truth, results, tmp_path)


def test_no_results_are_zero_not_a_crash():
    evaluation = evaluate_results(truth_of(annotation(1, 1, a_person())), [])
    assert (evaluation.people, evaluation.results, evaluation.score_threshold) == (1, 0, None)
    assert evaluation.figures.ap == evaluation.figures.ar == 0
    assert evaluation.joints[0].labelled == 1
    assert evaluation.joints[0].distance is None


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
    wanted[skeleton.COCO.annotated.index("left_ear")] = 0
    other = a_person(1)
    found = wanted.astype(float)
    found[skeleton.COCO.annotated.index("nose"), 0] += 30
    found[skeleton.COCO.annotated.index("right_hip")] = 0
    found[skeleton.COCO.annotated.index("left_knee"), 0] += 3
    area = 10_000.0
    truth = truth_of(annotation(1, 1, wanted, area=area), annotation(2, 2, other), images=2)
    table = {joint.joint: joint for joint in evaluate_results(truth, [result(found)]).joints}
    assert list(table) == list(skeleton.COCO.annotated)
    assert (table["left_ear"].labelled, table["left_ear"].in_found, table["left_ear"].distance) == (1, 0, None)
    assert (table["nose"].labelled, table["nose"].in_found, table["nose"].close) == (2, 1, 0)
    assert table["nose"].distance == pytest.approx(0.3)
    assert table["right_hip"].distance is None
    assert table["left_knee"].distance == pytest.approx(0.03)
    assert table["left_knee"].similarity == pytest.approx(np.exp(-(3**2) / (2 * area * (2 * 0.087) ** 2)))
    assert table["left_wrist"].similarity == 1


def test_table_by_size():
    sizes = [20, 50, 80, 300]
    annotations = [annotation(n + 1, n + 1, a_person(n), area=float(size**2)) for n, size in enumerate(sizes)]
    results = [result(a_person(n), image=n + 1) for n in (1, 3)]
    table = {size.low: size for size in evaluate_results(truth_of(*annotations, images=4), results).sizes}
    found = {low: (size.people, size.found, size.ar, round(size.ap, 3)) for low, size in table.items()}
    wanted = {0: (1, 0, 0, 0), 32: (1, 1, 1, 1), 64: (1, 0, 0, 0), 96: (0, 0, -1, -1), 192: (1, 1, 1, 1)}
    assert {low: found[low] for low in wanted} == wanted


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
