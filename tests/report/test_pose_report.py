"""The report of poses has the evaluation's figures, and pictures of found and labelled people."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from finished_nights import entered
from finished_pose_run import finished_pose_run
from ledger_entries import DAY, NOON
from pose_oracle import nothing, perfect

from podline.base.errors import ArtifactError
from podline.base.progress import silent
from podline.cli import cli
from podline.compare.lost import explain
from podline.compare.runs import compare_runs
from podline.kinds.pose import sections
from podline.kinds.pose.judged_pictures import judged_pictures
from podline.kinds.pose.lost_answers import LOST
from podline.report.blocks import Text
from podline.report.facts import gather
from podline.report.report import report
from podline.stages.table import REPORT
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers", "few_draws")


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return finished_pose_run(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def reported(spec):
    return report(spec, silent())


@pytest.fixture(scope="module")
def facts(spec):
    return gather(open_store(spec.root), spec, silent())


@pytest.fixture(scope="module")
def page(spec, reported):
    return open_store(spec.root).read_bytes(reported.html).decode()


def test_figures_are_those_of_the_evaluation(facts, spec, reported, page):
    assert REPORT.find(spec, silent()) == reported.model_copy(update={"reused": True})
    evaluation = facts.evaluation
    text = facts.store.read_bytes(reported.markdown).decode()
    ap = evaluation.trained.metrics["ap"]
    for shown in (re.sub(r"<[^>]+>", "", page), text):
        assert f"AP {ap.value:.3f} [{ap.low:.3f}, {ap.high:.3f}] for person keypoints" in shown
        assert "left ankle" in shown
        assert evaluation.verdict() in shown.replace("&#39;", "'").replace("\\", "")
        assert "PCK@0.2 is the share of labelled joints that" in shown.replace("\\", "")
        assert f"score of {evaluation.threshold.judged.score:.3f}" in shown
        assert "truncated" in shown  # the drawn sample has a file that is, in quarantine
    assert "stage3 heatmap" in text


def test_pictures_of_found_and_labelled_people_side_by_side(facts, page):
    found, seen = (
        judged_pictures(facts.store, facts.spec, facts.manifest, facts.evaluation, seen=seen) for seen in (False, True)
    )
    judged = [picture for pictures in found.values() for picture in pictures]
    assert len({picture.figures.image_id for picture in judged}) == len(judged) >= 2
    assert page.count("with the instances found") == page.count("with the labelled instances")
    assert page.count("with the instances found") == len(judged) + sum(map(len, seen.values()))
    for picture in judged:
        height, width, _ = picture.image.shape
        labelled = picture.wanted[picture.wanted[..., 2] > 0]
        assert ((labelled[:, :2] > -1) & (labelled[:, :2] < (width, height))).all()
    for panel in ("Heatmaps of the network", "left wrist", "right knee – right ankle"):
        assert panel in page


@pytest.mark.slow
def test_a_report_of_another_split_stands_beside_and_says_that_nobody_was_found(tmp_path):
    spec = finished_pose_run(tmp_path, nothing, split="train")
    result = report(spec, silent())
    assert result.html == f"runs/{spec.run}/on-train/report.html"
    page = open_store(spec.root).read_bytes(result.html).decode()
    assert "Images of the train split" in page
    assert "No score threshold could be chosen" in page
    assert 'class="warning"' in page


def test_images_that_chose_the_threshold_are_not_said_to_be_without_influence(facts):
    def words(split):
        judged = replace(facts, evaluation=facts.evaluation.model_copy(update={"split": split}))
        return " ".join(block.text for block in sections.metrics.blocks(judged) if isinstance(block, Text))

    assert "of the train split; the judged images did not influence it. On the test split" in words("test")
    assert "of the train split. On the train split" in words("train")


def test_damaged_people_are_named(spec, tmp_path):
    spec = spec.model_copy(update={"root": str(shutil.copytree(spec.root, tmp_path / "copy"))})
    store = open_store(spec.root)
    store.publish_bytes(f"runs/{spec.run}/people-test.json", b'{"a": 1}', replace=True)
    with pytest.raises(ArtifactError, match=r"people-test\.json is not a list of people .*; evaluate the run again"):
        report(spec, silent())
    store.publish_bytes(f"runs/{spec.run}/people-test.json", b"[]", replace=True)
    store.publish_bytes(f"runs/{spec.run}/maps.npz", b"PK\x03\x04 and no more", replace=True)
    with pytest.raises(ArtifactError, match=r"maps\.npz is not a file of maps .*; evaluate the run again"):
        report(spec, silent())


def test_a_comparison_in_which_nothing_was_lost_says_so_and_writes_no_picture(tmp_path):
    names = [finished_pose_run(tmp_path, seed=seed).run for seed in range(2)]
    out = tmp_path / "lost.png"
    asked = ["runs", "compare", names[1], names[0], "--why", "--root", str(tmp_path), "--out", str(out)]
    said = CliRunner().invoke(cli, asked).output
    assert f"{names[1]} has the same AP as {names[0]}" in said
    assert f"no example is wrong in the first run only; {out} is not written" in said
    assert not out.exists()


@pytest.mark.slow
def test_a_run_is_held_against_the_night_before_as_runs_compare_holds_it_on_the_same_images(tmp_path):
    before, now = (finished_pose_run(tmp_path, answers, seed=seed) for seed, answers in enumerate((perfect, nothing)))
    entries = [entered(before, NOON - DAY), entered(now, NOON + DAY)]
    store = open_store(tmp_path)
    [verdict] = compare_runs(store, entries).verdicts
    rival = gather(store, now, silent()).standing.rival
    assert rival.comparison == verdict
    assert (verdict.against, verdict.difference.paired) == (before.run, True)
    why, pictures, _ = explain(store, rival)
    assert (why.comparison, why.lost > 0) == (verdict, True)
    for then, found_now in pictures:
        assert all((picture == LOST).all(axis=-1).any() for picture in (then, found_now)), "framed, or ringed"
        assert not np.array_equal(then, found_now), "this run does not find them"
    page = store.read_bytes(report(now, silent()).html).decode()
    shown = page.partition("<h2>What differs</h2>")[2].partition("</section>")[0]
    assert f"the {len(why.examples)} images that lost the most joints" in shown
    assert shown.count(f"with the instances that {before.run} finds") == len(why.examples)
    assert shown.count("with the instances that this run finds") == len(why.examples)
