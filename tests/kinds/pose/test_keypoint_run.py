"""A skeleton of one's own through the whole chain: converted, trained, evaluated, reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import coco
from pycocotools.cocoeval import COCOeval
from small_poses import RECIPE

from podline.base.progress import Reporter, silent
from podline.beam_jobs.conversion import convert
from podline.champions.exporting import export
from podline.data.people.truth import truth_name
from podline.documents.completion import read_completion
from podline.documents.manifest import read_manifest
from podline.documents.metrics_log import StepsLine
from podline.documents.skeleton import SKELETON
from podline.evaluation.evaluate import evaluate
from podline.evaluation.predicting import run as predict
from podline.kinds.pose.objective import pose_objective
from podline.kinds.pose.settings import PoseSettings
from podline.ledger.inventory.catalogue import training_of
from podline.models.published_weights import published_layers
from podline.recipes.durations import Duration
from podline.recipes.kind_table import read_evaluation
from podline.recipes.phases import PhaseSettings
from podline.recipes.published_weights import Pretrained
from podline.report.report import report
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import WEIGHTS, ConvertSpec, ReportSpec, TrainResult
from podline.stages.tools import ExportSpec, PredictSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train
from tests.support.metrics import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_layers", "few_draws")]

JOINTS = ("head", "left_wing", "right_wing", "thorax", "tip")
SIGMAS = {"head": 0.3, "thorax": 0.25, "tip": 0.35, "left_wing": 0.2, "right_wing": 0.2}
SIDE, IMAGES = 64, 24
SOME_LAYERS = {
    "stem_conv": True,
    "block3b_depthwise_conv": True,
    "block4c_project_conv": True,
    "block5a_expand_conv": False,
}
"""Layer of EfficientNet-Lite0 → whether a frozen one."""
SAID = (
    "one subject an image (counted in the annotations; task.subjects sets it): each joint is at its heatmap's maximum, "
    "without part affinity fields"
)


def draw_flies(folder: Path) -> None:
    """A bright cross on noise: its ends and its middle are the joints."""
    random = np.random.default_rng(1)
    folder.mkdir()
    images, annotations = [], []
    for number in range(1, IMAGES + 1):
        pixels = random.integers(0, 60, (SIDE, SIDE, 3)).astype(np.uint8)
        x, y = random.integers(22, 42, 2).tolist()
        places = [(x, y - 14), (x - 14, y), (x + 14, y), (x, y), (x, y + 14)]
        for shade, (column, row) in enumerate(places):
            cv2.circle(pixels, (column, row), 4, (255 - 40 * shade, 60 * shade, 200), -1)
        cv2.imwrite(str(folder / f"{number}.png"), pixels)
        keypoints = [value for place in places for value in (*place, 2)]
        images.append({"id": number, "file_name": f"{number}.png", "width": SIDE, "height": SIDE})
        annotations.append({"id": number, "image_id": number, "category_id": 7, "keypoints": keypoints})
    category = {"id": 7, "name": "fly", "keypoints": JOINTS, "skeleton": [[3, 0], [3, 1], [3, 2], [3, 4]]}
    made = {"images": images, "annotations": annotations, "categories": [category]}
    (folder / "flies.json").write_text(json.dumps(made))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, str]:
    """The store, the data set's folder, the run's."""
    folder = tmp_path_factory.mktemp("flies")
    draw_flies(folder / "raw")
    given = {"root": str(folder / "root"), "dataset": "keypoints", "source": str(folder / "raw")}
    spec = ConvertSpec.model_validate(given | {"side": SIDE, "max_people": 2, "sigmas": SIGMAS})
    converted = convert(spec, silent())
    store = open_store(spec.root)
    changes = {"dataset": "keypoints", "duration": Duration(steps=150), "evaluate_every": None}
    pose = PoseSettings.of(RECIPE).model_copy(update={"max_people": 2, "emphasis": 4.0})
    recipe = RECIPE.model_copy(
        update={**changes, "task": pose.model_copy(update={"augmentation": type(pose.augmentation)()})}
    )
    training = training_spec(store, recipe, converted.fingerprint, "cpu")
    said: list[str] = []
    trained = train(training, Reporter("train", lambda event: said.append(event.get("message", ""))))
    assert SAID in said
    evaluated = evaluate(evaluation_spec(training, trained), silent())
    wanted = {"run": trained.run, "dataset": "keypoints", "fingerprint": converted.fingerprint}
    made = ReportSpec.model_validate({"root": spec.root, **wanted, "evaluation_sha256": evaluated.evaluation_sha256})
    report(made, silent())
    return store, converted.folder, trained.folder


def test_its_figures_are_pycocotools_with_the_same_constants_and_those_of_its_export(
    run: tuple[Store, str, str], tmp_path: Path
) -> None:
    store, dataset, folder = run
    truth = coco.COCO()
    truth.dataset = json.loads(store.read_bytes(f"{dataset}/{truth_name('test')}"))
    truth.createIndex()
    judged = COCOeval(truth, truth.loadRes(json.loads(store.read_bytes(f"{folder}/people-test.json"))), "keypoints")
    judged.params.kpt_oks_sigmas = np.array([SIGMAS[joint] for joint in JOINTS])
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    found = {name: metric.value for name, metric in read_evaluation(store, folder).trained.metrics.items()}
    assert found["ap50"] > 0.2, "it learned something, or the figures say nothing"
    for name, place in (("ap", 0), ("ap50", 1), ("ap75", 2), ("ar", 5)):
        assert found[name] == pytest.approx(judged.stats[place], abs=1e-6)
    trained = TrainResult.model_validate(read_completion(store, folder, "train").result)
    given = {"root": store.uri, "run": trained.run, "weights_sha256": trained.weights_sha256}
    result = export(ExportSpec(**given, format="tflite", file=str(tmp_path / "model")), silent())
    assert (result.measure, result.differing, result.difference < 1e-3) == ("ap", None, True)
    assert result.model == pytest.approx(found["ap"])
    assert result.exported == pytest.approx(result.model, abs=0.02)


def test_one_subject_an_image_is_found_said_and_learned_without_fields(run: tuple[Store, str, str]) -> None:
    """The annotations show it, unless the recipe says otherwise; the training, its measures and its page have none."""
    store, dataset, folder = run
    manifest = read_manifest(store, dataset)
    recipe = training_of(store, folder.removeprefix("runs/")).recipe
    found = pose_objective(recipe, manifest)
    assert (found.stages, found.remarks) == (("stage1_heatmap",), (SAID,))
    several = recipe.changed(task=PoseSettings.of(recipe).changed(subjects="several"))
    given = pose_objective(several, manifest)
    assert given.stages == ("stage1_paf", "stage2_paf", "stage3_heatmap")
    assert given.remarks == ("several subjects an image (task.subjects): part affinity fields separate the subjects",)
    uncounted = manifest.model_copy(update={"facts": {SKELETON: manifest.facts[SKELETON]}})
    assert "(not counted when the data were converted; " in pose_objective(recipe, uncounted).remarks[0]
    lines = read_metrics(store.local(f"{folder}/metrics.jsonl"))
    measures = [line.measures for line in lines if isinstance(line, StepsLine)]
    assert measures
    assert all(name.startswith("stage1_heatmap/") for line in measures for name in line)
    page = store.read_bytes(f"{folder}/report.html").decode()
    assert "Each joint’s heatmap" in page
    assert "affinity" not in page
    found_in = [fly["image_id"] for fly in json.loads(store.read_bytes(f"{folder}/people-test.json"))]
    assert len(found_in) == len({*found_in}) == manifest.split("test").records


def test_its_pages_and_pictures_name_no_people(run: tuple[Store, str, str], tmp_path: Path) -> None:
    store, dataset, folder = run
    skeleton = read_manifest(store, dataset).skeleton
    assert (skeleton.category, skeleton.annotated) == ("fly", JOINTS)
    page = store.read_bytes(f"{folder}/report.html").decode()
    assert all(joint in page or joint.replace("_", " ") in page for joint in JOINTS)
    assert "shoulder" not in page
    for name in ("report.html", "report.md"):
        page = store.read_bytes(f"{folder}/{name}").decode()
        assert "for fly keypoints on the test split" in page
        # Names stay: of figures in evaluation.json, of a file, of a setting.
        words = re.sub(r"people-test\.json|max_people|base64,[^\"]*", "", page)
        assert not re.findall(r"(?i)(?<![^\W_])(?:people|person|nobody|who|whom)(?![^\W_])", words)
    picture = tmp_path / "fly.png"
    cv2.imwrite(str(picture), np.zeros((SIDE, SIDE, 3), np.uint8))
    root, out = store.uri, str(tmp_path / "out")
    spec = PredictSpec(root=root, run=folder.removeprefix("runs/"), images=(str(picture),), out=out)
    [found] = predict(spec, silent()).pictures
    assert re.search(r": \d+ instances? → ", found.line())


def test_a_pretrained_trunk_is_frozen_first_compiled_by_xla_and_exported(
    run: tuple[Store, str, str], tmp_path: Path
) -> None:
    store, dataset, _ = run
    pose = PoseSettings.of(RECIPE)
    changes = {"trainable_layers": ["block5*conv", "neck", "stage"], "task.augmentation.views": 0}
    model = pose.model.changed(trunk="efficientnet-lite0", width=1.0, features=32, stage_width=32)
    augmentation = type(pose.augmentation)(rotation=10, views=2)
    recipe = RECIPE.changed(
        dataset="keypoints",
        task=pose.changed(max_people=2, emphasis=4.0, model=model, augmentation=augmentation),
        duration=Duration(epochs=40),
        trainable_layers=("neck", "stage"),
        phases=(PhaseSettings(from_share=0.8, changes=changes),),
        ema_decay=0.0,
        evaluate_every=None,
        jit=True,
        deterministic=False,
    )
    training = training_spec(store, recipe, dataset.rpartition("/")[2], "cpu")
    trained = train(training, silent())
    assert training.recipe.init is not None
    published = published_layers(store, Pretrained("efficientnet-lite0"), training.recipe.init.checksum)
    with np.load(store.local(f"{trained.folder}/{WEIGHTS}")) as weights:
        kept = {name: np.array_equal(weights[f"{name}/kernel"], published[name]["kernel"]) for name in SOME_LAYERS}
        assert kept == SOME_LAYERS
        assert np.array_equal(
            weights["block4c_project_norm/moving_mean"], published["block4c_project_norm"]["moving_mean"]
        )
    given = {"root": store.uri, "run": trained.run, "weights_sha256": trained.weights_sha256}
    result = export(ExportSpec(**given, format="tflite-int8", file=str(tmp_path / "model")), silent())
    assert result.model > 0.2
    # Integers move a joint by parts of a cell, which is much in images of 64 pixels.
    assert result.exported == pytest.approx(result.model, abs=0.1)
