"""docs/how-to/data-set.md's data set, SVHN, in a package that is really installed: from .mat files to the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from small_dataset import validation_of
from support.extending import code_of, install

from podline import cli
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.reader import open_split
from podline.data.versions.validation import validate
from podline.documents.manifest import read_manifest
from podline.evaluation.evaluate import evaluate
from podline.recipes import datasets, registry
from podline.report.report import report
from podline.stages.specs import ConvertSpec, EvaluateSpec, ReportSpec, TrainResult, TrainSpec
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm
from podline.training.train import train

pytestmark = pytest.mark.usefixtures("few_layers")

SHORT = {"duration.steps": 40, "batch_size": 32, "model.width": 0.25}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the page's one: its modules, and what an installer writes of it."""
    files, svhn = (code_of("## A data set", "python", number) for number in (0, 1))
    toml = code_of("## A data set", "toml")
    return install(tmp_path_factory.mktemp("site"), {"svhn": svhn, "svhn_files": files}, toml)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two files of drawn digits, as MATLAB writes them: a test image is a training image too."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "raw").mkdir()
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 11, (300, 1)).astype(np.uint8)
    labels[3] = labels[200]
    images = rng.integers(0, 40, (32, 32, 3, 300), np.uint8) + 20 * labels[:, 0]  # a digit is as bright as it is large
    images[..., 3] = images[..., 200]
    for name, part in {"train": slice(200), "test": slice(200, 300)}.items():
        content = {"X": images[..., part], "y": labels[part]}
        savemat(folder / "raw" / f"{name}_32x32.mat", content, do_compression=True)
    return folder


@pytest.fixture(scope="module")
def made(package: Path, work: Path) -> tuple[TrainSpec, TrainResult]:
    """A run on the data set, converted and trained where the package is installed."""
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(package)
        installed.setenv("PYTHONPATH", str(package))  # for the children that read files
        root = str(work / "root")
        found = convert(ConvertSpec(root=root, dataset="svhn", source=str(work / "raw")), silent())
        recipe = registry.override(registry.get("svhn"), SHORT)
        spec = TrainSpec(root=root, recipe=recipe, fingerprint=found.fingerprint)
        return spec, train(spec, silent())


def records(root: Path, folder: str, split: str) -> list[tuple[bytes, int]]:
    """Every record of a split, by its pixels."""
    store = open_store(str(root))
    reader = open_split(store, folder, read_manifest(store, folder), split)
    found = reader.gather(np.arange(len(reader)))
    return sorted((image.tobytes(), int(label)) for image, label in zip(found["image"], found["label"], strict=True))


def test_every_record_has_the_pixels_and_the_label_of_its_file(made: tuple[TrainSpec, TrainResult], work: Path) -> None:
    root, folder = work / "root", made[0].dataset_folder
    for split, left_out in {"train": [3], "test": []}.items():
        content = loadmat(work / "raw" / f"{split}_32x32.mat")
        pairs = [
            (content["X"][..., number].tobytes(), int(content["y"][number, 0]) % 10)
            for number in range(len(content["y"]))
            if number not in left_out
        ]
        assert records(root, folder, split) == sorted(pairs)
    manifest = read_manifest(open_store(str(root)), folder)
    assert [(record.record, record.reason) for record in manifest.quarantined] == [
        ("train_32x32.mat[3]", "the same image as one of the test split: test_32x32.mat[0]")
    ]
    assert manifest.converter["version"] == 1
    assert [file.name for file in manifest.source] == ["train_32x32.mat", "test_32x32.mat"]
    assert re.fullmatch(r"svhn-[0-9a-f]{12}", made[0].run)


def test_without_the_package_what_was_made_is_still_there(
    made: tuple[TrainSpec, TrainResult], work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def podline(*words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--root", str(work / "root")])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed.err
        return printed.err if code else printed.out

    assert "svhn" in podline("data", "list")
    assert "not the official" not in podline("data", "show", "svhn")
    spec, trained = made
    common: dict[str, Any] = {"root": spec.root, "run": spec.run, "dataset": "svhn", "fingerprint": spec.fingerprint}
    judged = evaluate(EvaluateSpec(**common, weights_sha256=trained.weights_sha256), silent())
    assert report(ReportSpec(**common, evaluation_sha256=judged.evaluation_sha256), silent()).html
    assert validate(validation_of(spec.root, "svhn", spec.fingerprint, deep=True), silent()).records == 299
    assert spec.run in podline("store", "list")
    podline("store", "verify")
    assert "there is no data set 'svhn'" in podline("convert", "svhn", "--source", str(work / "raw"), code=2)


def test_it_is_in_the_form_of_its_kind(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.known("svhn") is None
    monkeypatch.syspath_prepend(package)
    assert datasets.find("svhn").kind == "classification"
    assert "svhn" in TrainingForm.model_json_schema()["properties"]["recipe"]["enum"]
    assert TrainingForm(recipe="svhn", source="raw").training_recipe().dataset == "svhn"
