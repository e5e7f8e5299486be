"""A champion as ONNX and TensorFlow Lite, judged beside the model that it was made of; on a run that was trained."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import drawn, publish_dataset
from trained_runs import trained

from podline.base.errors import ArtifactError
from podline.base.progress import silent
from podline.champions.exports import lite_model
from podline.champions.promote import promote
from podline.champions.serving.exporting import export
from podline.commands.models import _spec as spec_of
from podline.documents import champions
from podline.stages.tools import ExportFormat, ExportSpec
from podline.store.contract import Store
from podline.store.opening import open_store

TEST = 120
# Eight bits for a logit whose range is about 20.
COARSE = 0.5
FINE = 1e-3
needs_onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf2onnx", "onnxruntime"))),
    reason="the extra onnx is not installed",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=256, test=TEST)
    store = open_store(root)
    promote(spec_of(store, trained(store, 0), (), anyway=True, reason=""), silent())
    return store


def spec(store: Store, form: ExportFormat, file: Path, **values: Any) -> ExportSpec:
    entry = champions.champion(store, "t")
    asked = {"root": store.uri, "run": entry.run, "weights_sha256": entry.weights_sha256, "file": str(file)}
    return ExportSpec(format=form, **(asked | values))


@pytest.mark.parametrize(
    ("form", "allowed"), [pytest.param("onnx", FINE, marks=needs_onnx), ("tflite", FINE), ("tflite-int8", COARSE)]
)
def test_a_file_is_judged_beside_the_model(store: Store, form: ExportFormat, allowed: float, tmp_path: Path) -> None:
    file = tmp_path / "models" / "t"
    result = export(spec(store, form, file), silent())
    evaluated = store.read_json(f"runs/{result.run}/evaluation.json")["trained"]["metrics"]["top1"]["value"]
    assert (result.examples, result.measure, result.model) == (TEST, "top1", evaluated)
    assert result.difference < allowed
    assert abs(result.exported - result.model) <= result.differing / TEST <= allowed
    assert result.bytes == file.stat().st_size
    beside = json.loads((tmp_path / "models" / "t.json").read_text())
    assert beside == result.model_dump(mode="json", exclude={"reused"})
    again = export(spec(store, form, tmp_path / "again"), silent())
    if form != "onnx":  # names in it are counted by the process
        assert (tmp_path / "again").read_bytes() == file.read_bytes()
    assert again.exported == result.exported


@pytest.mark.usefixtures("stages_here")
def test_a_command_names_the_file_and_its_figures_on_the_examples_asked_for(store: Store, podline, tmp_path) -> None:
    where = ("--format", "tflite-int8", "--examples", "50", "--root", store.uri, "--json")
    answer = podline("models", "export", "t", str(tmp_path), *where)
    assert answer.code == 0, answer.err
    result, file = json.loads(answer.out), tmp_path / "t" / "1-int8.tflite"
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, f"{file.name}.json"]
    images, labels = drawn(TEST, 1)["image"][:50], drawn(TEST, 1)["label"][:50]
    ask = lite_model(file.read_bytes())
    guesses = np.concatenate([ask(images[place : place + 1])[0] for place in range(50)]).argmax(axis=1)
    assert (result["file"], result["examples"], result["exported"]) == (str(file), 50, (guesses == labels).mean())


def test_a_model_that_cannot_be_converted_leaves_no_file(store: Store, tmp_path: Path, monkeypatch) -> None:
    def fails(*_: object) -> bytes:
        raise NotImplementedError("no such operation")

    monkeypatch.setattr("podline.champions.serving.exporting.lite_file", fails)
    with pytest.raises(ArtifactError, match="as tflite: NotImplementedError: no such operation; give another --format"):
        export(spec(store, "tflite", tmp_path / "model.tflite"), silent())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["serve", "export"])
def test_a_recipe_without_a_champion_is_named(store: Store, podline: Any, tmp_path: Path, command: str) -> None:
    place = (str(tmp_path),) if command == "export" else ()
    answer = podline("models", command, "other", *place, "--root", store.uri)
    assert "other has no champion" in answer.err
