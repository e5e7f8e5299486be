"""People are judged by the source's annotations, with a threshold from training images, and by PCK and guessing."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from independent_pck import pck as independent_pck
from pose_oracle import POSES, RECIPE, case_of, nothing, perfect
from small_coco import publish_people

from podline.base.errors import ArtifactError, DivergenceError, SanityError, SettingsError
from podline.base.progress import Reporter, silent
from podline.data.people.truth import read_truth
from podline.documents.manifest import dataset_folder
from podline.documents.skeleton import COCO
from podline.evaluation.evaluate import evaluate
from podline.kinds.pose.document import MAPS, SEEN, people_name
from podline.kinds.pose.judging import judge
from podline.kinds.pose.maps import maps_from_bytes
from podline.kinds.pose.oks import judged as judged_people
from podline.kinds.pose.oks import score_threshold
from podline.kinds.pose.pck import require_fit
from podline.recipes.durations import Duration
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import EvaluateSpec
from podline.store.opening import open_store
from podline.training.train import train

pytestmark = pytest.mark.usefixtures("few_layers", "few_draws")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    manifest = publish_people(root)
    return open_store(root), manifest


def evaluate_spec(dataset, **changes):
    store, manifest = dataset
    given = {"split": "test", "batch_size": 3} | changes
    return EvaluateSpec(
        root=store.uri, run="r", dataset=manifest.dataset, fingerprint=manifest.fingerprint, weights_sha256="0" * 64,
        **given,
    )  # fmt: skip


def some_joints(batches):
    """Right answers for the six joints of the arms."""
    arms = [place for name, place in COCO.index.items() if name.endswith(("shoulder", "elbow", "wrist"))]
    for (heatmaps, pafs), fields in perfect(batches):
        kept = np.zeros_like(heatmaps)
        kept[..., arms] = heatmaps[..., arms]
        yield (kept, pafs), fields


def lucky(batches):
    """Right answers for the first image of a split alone."""
    for number, ((heatmaps, pafs), fields) in enumerate(perfect(batches)):
        heatmaps[0 if number else 1 :] = 0
        yield (heatmaps, pafs), fields


def judged(dataset, after, reporter=None, recipe=RECIPE, **changes):
    """The document, the people of the split and of images that were trained on, the maps."""
    store, manifest = dataset
    spec = evaluate_spec(dataset, **changes)
    judgement = judge(case_of(spec, recipe, store, manifest, reporter), nothing, after)
    people, seen = (json.loads(judgement.files[people_name(which)]) for which in (spec.split, SEEN))
    maps = maps_from_bytes(judgement.files[MAPS]) if MAPS in judgement.files else None
    return SimpleNamespace(document=judgement.document, people=people, seen_people=seen, maps=maps)


def truth(dataset, split="test"):
    store, manifest = dataset
    return read_truth(store, dataset_folder(manifest.dataset, manifest.fingerprint), manifest, split)


@pytest.fixture(scope="module")
def verdict(dataset):
    return judged(dataset, perfect)


def test_every_image_of_the_split_is_judged_by_the_sources_annotations(dataset, verdict):
    document, wanted = verdict.document, truth(dataset)
    counted = [person for person in wanted["annotations"] if person["num_keypoints"] and not person["iscrowd"]]
    assert document.trained.images == len(wanted["images"]) == dataset[1].split("test").records
    assert document.trained.people == len(counted) > 3
    figures = judged_people(wanted, verdict.people).stats
    assert document.trained.metrics["ap"].value == figures[0] > 0.6
    assert document.trained.metrics["ar"].value == figures[5]
    assert document.trained.results == len(verdict.people)
    assert sum(joint.labelled for joint in document.joints) == sum(person["num_keypoints"] for person in counted)
    assert document.untrained.metrics["ap"].value == 0
    assert 0 <= document.guessing.value < 0.2
    assert (document.better_in, document.better_than_guessing, document.learned) == (("ap", "pck"), True, True)
    best, worst = document.pictures.best, document.pictures.worst
    assert min(image.quality for image in best) >= max(image.quality for image in worst)
    assert document.maps_of == document.pictures.median[0].image_id
    for answered, wanted in zip(verdict.maps[:2], verdict.maps[2:], strict=True):
        assert np.abs(answered - wanted).max() == 0 < wanted.max()


def test_pck_equals_an_independent_computation_from_the_written_people(dataset):
    torso = ("right_shoulder", "left_hip")
    found = judged(dataset, some_joints, recipe=RECIPE.changed(task=POSES.changed(pck_joints=torso)))
    ends = tuple(map(COCO.annotated.index, torso))
    expected, document = independent_pck(truth(dataset), found.people, ends, 40), found.document
    told = [document.trained.metrics["pck"], *(joint.pck for joint in document.joints)]
    np.testing.assert_array_equal(
        [[each.value, each.low, each.high] if each else [np.nan] * 3 for each in told], expected
    )
    assert document.untrained.metrics["pck"].value == 0 < told[0].value < 1
    assert (document.trained.metrics["ap"].value, document.better_in, document.learned) == (0, ("pck",), True)
    assert document.verdict().startswith("Joints are found better than by guessing, whole instances are not: AP 0.000 ")
    without = {name: metric for name, metric in document.seen.metrics.items() if name != "pck"}
    seen = document.seen.model_copy(update={"metrics": without})  # no training image has both labels
    assert document.model_copy(update={"seen": seen, "better_in": ()}).verdict().startswith("The result is better")
    unlearned = {"seen": seen, "better_in": (), "better_than_guessing": False}
    assert "AP 0.000 vs" in document.model_copy(update=unlearned).verdict()
    unknown = RECIPE.changed(task=POSES.changed(pck_joints=("left_shoulder", "tail")))
    with pytest.raises(SettingsError, match=r"task\.pck_joints: got tail, expected two of nose, left_eye, "):
        require_fit(unknown, dataset[1])


def test_one_lucky_image_and_nobody_found_are_no_better_than_guessing(dataset):
    document = judged(dataset, lucky).document
    assert document.trained.metrics["ap"].value > document.guessing.value
    assert not document.better_than_guessing
    assert "is not better than guessing" in document.verdict()
    document = judged(dataset, nothing).document
    assert (document.trained.metrics["ap"].value, document.trained.results, document.threshold) == (0, 0, None)
    assert (document.better_than_guessing, document.learned) == (False, False)
    assert "not even on training images" in document.verdict()


def test_the_threshold_is_chosen_on_images_that_were_trained_on(dataset, verdict):
    threshold, seen = verdict.document.threshold, truth(dataset, "train")
    known = {image["id"] for image in truth(dataset)["images"]}
    assert threshold.chosen_on == "train"
    assert threshold.images == len(seen["images"]) == verdict.document.seen.images
    assert not known & {person["image_id"] for person in verdict.seen_people}
    assert threshold.seen.score == score_threshold(judged_people(seen, verdict.seen_people))
    assert threshold.judged.score == threshold.seen.score
    assert threshold.judged.people == verdict.document.trained.people


def test_a_network_that_learned_nothing_fails_the_sanity_check(dataset):
    store, manifest = dataset
    recipe = RECIPE.model_copy(update={"duration": Duration(steps=1), "evaluate_every": None})
    training = training_spec(store, recipe, manifest.fingerprint, "cpu")
    evaluated = evaluate(evaluation_spec(training, train(training, silent())), silent())
    with pytest.raises(SanityError, match=r"has the AP 0\.000 and PCK@0\.2 0.*--set task\.model\.trunk=") as said:
        evaluated.require_sane()
    assert "more than 1 step (--steps 400, or --minutes " in str(said.value)


def test_what_cannot_be_judged_is_named(dataset, monkeypatch):
    def broken(batches):
        for (heatmaps, pafs), fields in perfect(batches):
            pafs[0, 0, 0, 0] = np.nan
            yield (heatmaps, pafs), fields

    with pytest.raises(DivergenceError, match=r"image \d+: the network's outputs are not finite"):
        judged(dataset, broken)
    store, manifest = dataset
    splits = tuple(split.model_copy(update={"truth": None}) for split in manifest.splits)
    with pytest.raises(ArtifactError, match="no file of true poses; convert the data again"):
        judged((store, manifest.model_copy(update={"splits": splits})), perfect)

    def unlabelled(*given):
        nobody = {"keypoints": [0] * 51, "num_keypoints": 0}
        found = read_truth(*given)
        return found | {"annotations": [annotation | nobody for annotation in found["annotations"]]}

    monkeypatch.setattr("podline.kinds.pose.judging.read_truth", unlabelled)
    with pytest.raises(ArtifactError, match="no image of the test split has a labelled"):
        judged(dataset, perfect)


def test_the_training_split_can_be_judged_and_is_looked_at_once(dataset):
    told = []
    reporter = Reporter("evaluate", lambda event: told.append((event["done"], event["total"])))
    found = judged(dataset, perfect, reporter, split="train")
    images = len(truth(dataset, "train")["images"])
    assert found.document.trained == found.document.seen
    assert found.people == found.seen_people
    assert found.document.trained.images == images
    assert told[-1] == (2 * images, 2 * images)
