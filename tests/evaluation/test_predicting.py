"""Pictures and sources of any layout are answered as the model answers them; bad ones are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pandas as pd
import pytest
from keras import layers
from pose_oracle import RECIPE
from small_coco import publish_people
from small_dataset import CLASS_NAMES, drawn, publish_dataset, small_recipe
from trained_runs import untrained

from podline import notebook
from podline.base.errors import SettingsError, SourceError
from podline.base.plurals import plural
from podline.base.progress import Reporter, silent
from podline.data.images.settings import ClassesSettings
from podline.evaluation import pictures, predicting
from podline.evaluation.forward import finished_model
from podline.evaluation.grad_cam import place_weights, saliency
from podline.evaluation.predicting import run
from podline.stages.specs import TrainSpec
from podline.stages.tools import PredictSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> TrainSpec:
    root = tmp_path_factory.mktemp("classes")
    return untrained(root, small_recipe(), publish_dataset(root))


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> TrainSpec:
    root = tmp_path_factory.mktemp("poses")
    return untrained(root, RECIPE, publish_people(root))


def picture(folder: Path, name: str, width: int = 90, height: int = 60) -> str:
    folder.mkdir(exist_ok=True)
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    assert cv2.imwrite(str(folder / name), cv2.blur(pixels, (5, 5)))
    return str(folder / name)


def spec_of(training: TrainSpec, out: Path, *images: str, **changes) -> PredictSpec:
    return PredictSpec(root=training.root, run=training.run, images=images, out=str(out), **changes)


def test_classes_with_probabilities(classifier, tmp_path):
    files = [str(tmp_path / f"{place}.png") for place in range(3)]
    assert all(map(cv2.imwrite, files, drawn(3, 5)["image"]))
    result = run(spec_of(classifier, tmp_path / "out", *files), silent())
    assert ([found.file for found in result.pictures], result.threshold) == (files, None)
    for found in result.pictures:
        assert {share.name for share in found.classes} == set(CLASS_NAMES)
        probabilities = [share.probability for share in found.classes]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1)
        assert found.line().startswith(f"{found.file}: {found.classes[0].name} ")
    assert [entry["file"] for entry in json.loads(Path(result.json_file).read_text())] == files
    assert [path.name for path in (tmp_path / "out").glob("*.*")] == ["predictions.json"]


@pytest.mark.slow
def test_people_on_pictures_of_any_size(network, tmp_path):
    files = [
        picture(tmp_path / "a", "wide.jpg", 300, 40),
        picture(tmp_path / "a", "wide-2.png", 33, 200),
        picture(tmp_path / "b", "Wide.jpg", 20, 20),
        picture(tmp_path / "b", "000000000785.jpg"),
    ]
    told = []
    result = run(spec_of(network, tmp_path / "out", *files), Reporter("predict", told.append))
    assert result.threshold == 0
    assert "instances of any score are drawn, since no evaluation chose a score threshold" in told[0]["message"]
    assert told[-1]["done"] == told[-1]["total"] == len(files)
    assert [Path(found.picture).name for found in result.pictures] == [
        "wide.png", "wide-2.png", "Wide-3.png", "000000000785.png",
    ]  # fmt: skip
    for found in result.pictures:
        drawn_on = cv2.imread(found.picture)
        assert max(drawn_on.shape) == 640
        assert abs(drawn_on.shape[1] / drawn_on.shape[0] - found.width / found.height) < 0.02 * found.width
    document = json.loads(Path(result.json_file).read_text())
    assert document == [person for found in result.pictures for person in found.people]
    assert all(len(person["keypoints"]) == 51 and person["category_id"] == 1 for person in document)
    for found, wanted in zip(result.pictures, (1, 2, 3, 785), strict=True):
        assert {person["image_id"] for person in found.people} <= {wanted}
    run(spec_of(network, tmp_path / "out", str(tmp_path / "b"), table=str(tmp_path / "b.csv")), silent())
    frame = pd.read_csv(tmp_path / "b.csv")
    assert [*frame] == ["file", "label", "found", "people", "reason"]
    assert sum(len(json.loads(row)) for row in frame.people) == sum(len(found.people) for found in result.pictures[2:])


def test_a_threshold_leaves_people_out_and_one_bad_file_is_named_before_anything_is_written(network, tmp_path):
    file, bad = picture(tmp_path, "a.jpg"), tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    with pytest.raises(SourceError, match=r"bad\.jpg is not a JPEG, PNG, WebP, BMP, TIFF or GIF"):
        run(spec_of(network, tmp_path / "out", file, str(bad)), silent())
    assert not (tmp_path / "out").exists()
    [nobody] = run(spec_of(network, tmp_path / "out", file, threshold=1.0), silent()).pictures
    assert nobody.people == ()
    assert nobody.line() == f"{file}: 0 instances → {tmp_path / 'out' / 'a.png'}"


def drawn_source(folder: Path, count: int = 30) -> tuple[list[str], list[str]]:
    """Write class folders with a damaged file; return the keys and their classes, in order."""
    examples, keys = drawn(count, 7), []
    for place, (image, label) in enumerate(zip(examples["image"], examples["label"], strict=True)):
        keys.append(f"{CLASS_NAMES[label]}/{place:02}.png")
        (folder / keys[-1]).parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(folder / keys[-1]), image[..., ::-1])
    (folder / keys[0]).write_bytes((folder / keys[0]).read_bytes()[:200])
    (folder / "notes.txt").write_text("to do")
    keys.sort()
    return keys, [key.partition("/")[0] for key in keys]


def test_a_source_is_answered_as_a_table_in_any_layout(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "BATCH", 7)
    keys, labels = drawn_source(tmp_path / "raw")
    table = tmp_path / "labels.csv"
    pd.DataFrame({"file": [f"raw/{key}" for key in keys], "label": labels}).to_csv(table, index=False)
    frames = []
    for number, source in enumerate((tmp_path / "raw", table)):
        out = tmp_path / f"{number}.parquet"
        spec = spec_of(classifier, tmp_path / "out", str(source), table=str(out), top=2)
        result = run(spec, silent())
        frames.append(pd.read_parquet(out))
        assert result.summary[0] == "29 pictures answered"
        assert result.summary[1].startswith("1 picture left out, see the column reason (1: is truncated: ")
    first = out.read_bytes()
    assert run(spec, silent()).summary == result.summary
    assert out.read_bytes() == first
    columns = ["answer", "confidence", "answer_2", "confidence_2"]
    assert [*frames[0]] == ["file", "label", *columns, "reason"]
    assert [*frames[0].file] == keys
    assert [*frames[1].label.fillna("")] == [*frames[0].label.fillna("")]
    pd.testing.assert_frame_equal(frames[1][columns], frames[0][columns])
    answered = frames[0][frames[0].reason.isna()]
    share = (answered.answer == answered.label).mean()
    assert f"accuracy {100 * share:.1f} %" in result.summary[2]
    model = finished_model(open_store(classifier.root), classifier.run)
    pixels = np.stack([cv2.imread(str(tmp_path / "raw" / key))[..., ::-1] for key in answered.file])
    assert [CLASS_NAMES[label] for label in np.argmax(model(pixels, training=False), axis=1)] == [*answered.answer]


def test_a_folder_without_classes_is_answered_and_damaged_files_are_named(classifier, tmp_path, monkeypatch):
    keys, _ = drawn_source(tmp_path / "raw", 6)
    flat = tmp_path / "flat"
    flat.mkdir()
    for key in keys:
        (tmp_path / "raw" / key).rename(flat / Path(key).name)
    monkeypatch.setattr(predicting.Predictor, "layouts", lambda _: ClassesSettings(images="of the training"))
    result = run(spec_of(classifier, tmp_path / "out", str(flat)), silent())
    assert [found.file for found in result.pictures] == [f"{place:02}.png" for place in range(1, 6)]
    assert result.summary[0].startswith("left out: 00.png is truncated")
    with pytest.raises(SourceError, match=r"is not a source of images: it holds 1 \.txt"):
        run(spec_of(classifier, tmp_path / "out", str(tmp_path / "raw" / "notes.txt")), silent())
    with pytest.raises(SettingsError, match=r"got a threshold for .*: the kind classification has none"):
        run(spec_of(classifier, tmp_path / "out", str(flat), threshold=0.5), silent())
    monkeypatch.setattr(predicting, "MOST_LISTED", 5)
    with pytest.raises(SettingsError, match=r"6 pictures, expected at most 5 without a table; .* --table "):
        run(spec_of(classifier, tmp_path / "out", str(flat)), silent())


def test_in_a_notebook_pictures_are_files_or_arrays(network, classifier, tmp_path):
    pixels = np.full((50, 70, 3), 120, np.uint8)
    file = picture(tmp_path, "a.jpg")
    by_file, by_array = notebook.predict(network.run, network.root, [file, pixels], threshold=0.0)
    assert by_file.prediction.people is not None
    assert str(by_file) == f"{file}: {plural(len(by_file.prediction.people), 'instance')}", "no picture is written"
    assert (by_array.prediction.width, by_array.prediction.height) == (70, 50)
    assert by_array._repr_png_().startswith(b"\x89PNG")
    [named] = notebook.predict(classifier.run, classifier.root, [pixels[..., 0]])
    assert str(named).startswith("picture 1: ")
    with pytest.raises(SourceError, match=r"^picture 2: got uint8 \(50, 70, 4\), expected uint8 \(height, width\), "):
        notebook.predict(classifier.run, classifier.root, [pixels, np.zeros((50, 70, 4), np.uint8)])
    for bad in (pixels / 255, pixels > 0, pixels[:0]):
        with pytest.raises(SourceError, match=rf"^picture 1: got {bad.dtype} \({len(bad)}, 70, 3\), expected uint8 "):
            notebook.predict(classifier.run, classifier.root, [bad])
    assert named.prediction.classes is not None


def test_places_that_speak_for_the_answer_are_the_brightest() -> None:
    images = np.full((2, 8, 8, 1), 128, np.uint8)
    images[0, :2, 6:] = 255  # bright, at the top on the right
    images[1, 6:, :4] = 0  # dark, at the bottom on the left
    # Two maps, of what is bright and of what is dark; the answer is the larger mean.
    image: Any = keras.Input((8, 8, 1), dtype="uint8")
    signs: Any = keras.initializers.Constant([[[[1.0, -1.0]]]])
    maps = layers.Conv2D(2, 1, use_bias=False, kernel_initializer=signs)(layers.Rescaling(1 / 128, -1)(image))
    model = keras.Model(image, layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2)(layers.ReLU()(maps))))
    weights = place_weights(model, images)
    assert weights is not None
    expected = np.zeros((2, 4, 4))
    expected[0, 0, 3] = expected[1, 3, :2] = 1
    np.testing.assert_allclose(weights, expected)
    bright, _ = (picture.sum(-1) for picture in saliency(model, [*images]))
    assert bright.shape == (8, 8)
    assert np.unravel_index(bright.argmax(), bright.shape) == (0, 7)


def test_maps_within_a_nested_model_are_found_and_models_without_or_with_attention_look_nowhere() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    image = keras.Input((16, 16, 3))
    backbone = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(4, 3, 2), layers.ReLU()])
    pooled = layers.GlobalAveragePooling2D()(backbone(image))
    weights = place_weights(keras.Model(image, layers.Dense(2)(pooled)), images)
    assert weights is not None
    assert weights.shape == (2, 7, 7)
    tokens = layers.Reshape((-1, 4))(backbone(image))
    mixed = layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(2, 2)(tokens, tokens))
    assert place_weights(keras.Model(image, layers.Dense(2)(mixed)), images) is None
    without = keras.Model(image, layers.Dense(3)(layers.Flatten()(image)))
    assert saliency(without, [*images]) == []
