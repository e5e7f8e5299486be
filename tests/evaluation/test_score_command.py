"""``podline models score``: pycocotools' own figures for anybody's results, from the command line."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from coco_people import CATEGORIES, random_results, random_truth
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from podline import cli


@pytest.fixture
def score(capsys, tmp_path):
    def run(truth, results, *options):
        files = [tmp_path / name for name in ("results.json", "truth.json")]
        for file, document in zip(files, (results, truth), strict=True):
            file.write_text(document if isinstance(document, str) else json.dumps(document))
        with pytest.raises(SystemExit) as ended:
            cli.main(["models", "score", str(files[0]), "--truth", str(files[1]), *options])
        return ended.value.code, *capsys.readouterr()

    return run


def test_json_has_pycocotools_figures_to_the_last_digit(score, tmp_path):
    truth = random_truth(7)
    results = random_results(truth, 7)
    code, out, _ = score(truth, results, "--json")
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(tmp_path / "truth.json"))
        evaluation = COCOeval(coco, coco.loadRes(str(tmp_path / "results.json")), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    assert code == 0
    assert list(json.loads(out)["figures"].values()) == evaluation.stats.tolist()


def test_a_page_for_people(score):
    truth = random_truth(7)
    code, out, _ = score(truth, random_results(truth, 7))
    assert code == 0
    for part in (" results for ", "AP50 ", "AR, large people", "from 192", "left wrist", "best F1 from score"):
        assert part in out


@pytest.mark.parametrize(
    ("truth", "results", "expected"),
    [
        (random_truth(7), [], 0),
        ({"images": [], "annotations": [], "categories": CATEGORIES}, [], -1),
        ({"images": [{"id": 1}], "annotations": [], "categories": CATEGORIES}, [], -1),
    ],
)
def test_empty_results_and_nobody_crash_nothing(score, truth, results, expected):
    code, out, _ = score(truth, results, "--json")
    assert code == 0
    assert json.loads(out)["figures"]["ap"] == expected
    code, out, _ = score(truth, results)
    assert code == 0
    assert "AP50                 " + ("0.000" if expected == 0 else "–") in out


def test_only_crowds(score):
    truth = random_truth(7)
    crowds = {**truth, "annotations": [person | {"iscrowd": 1} for person in truth["annotations"]]}
    code, out, _ = score(crowds, random_results(truth, 7), "--json")
    assert code == 0
    assert set(json.loads(out)["figures"].values()) == {-1}


@pytest.mark.parametrize("results", ["[", "{}", '[{"image_id": 1}]', '[{"image_id": 999999}]'])
def test_a_file_that_is_none_is_one_line_and_exit_code_3(score, results):
    code, out, err = score(random_truth(7), results)
    assert code == 3
    assert out == ""
    assert err.count("\n") == 1
    assert "results.json" in err
