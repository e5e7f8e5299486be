"""docs/extending.md's data set, SVHN, in a package that is really installed: from .mat files to the report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from support.extending import code_of, install

from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.recipes import datasets
from podline.store.opening import open_store
from podline.tasks.parameters import TrainingForm

Podline = Callable[..., str]
SHORT = ("--steps", "80", "--batch-size", "32", "--set", "model.width=0.25")


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


def podline(folder: Path, site: Path | None, *words: str, code: int = 0) -> str:
    """What a command prints, of its errors if it is to end with another code than 0; with or without the package."""
    environment = {**os.environ, "PYTHONPATH": str(site)} if site else dict(os.environ)
    command = [sys.executable, "-m", "podline.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def answer(package: Path, work: Path) -> dict[str, Any]:
    """What the whole flow answers."""
    return json.loads(podline(work, package, "run", "svhn", "--source", "raw", *SHORT, "--json"))


def records(root: Path, folder: str, split: str) -> list[tuple[bytes, int]]:
    """Every record of a split, by its pixels."""
    store = open_store(str(root))
    reader = open_split(store, folder, read_manifest(store, folder), split)
    found = reader.gather(np.arange(len(reader)))
    return sorted((image.tobytes(), int(label)) for image, label in zip(found["image"], found["label"], strict=True))


def test_every_record_has_the_pixels_and_the_label_of_its_file(answer: dict[str, Any], work: Path) -> None:
    root = work / "podline-root"
    [folder] = [f"datasets/svhn/{path.name}" for path in (root / "datasets/svhn").iterdir()]
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
        ("train_32x32.mat[3]", "the same image as test_32x32.mat[0] of the test split")
    ]
    assert manifest.converter["version"] == 1
    assert [file.name for file in manifest.source] == ["train_32x32.mat", "test_32x32.mat"]
    assert re.fullmatch(r"svhn-[0-9a-f]{12}", answer["run"])


def test_without_the_package_what_was_made_is_still_there(answer: dict[str, Any], work: Path) -> None:
    without: Podline = partial(podline, work, None)
    run = answer["run"]
    assert "svhn" in without("data", "list")
    assert "not the official" not in without("data", "show", "svhn")
    for stage in ("evaluate", "report"):
        (work / "podline-root" / "runs" / run / "stages" / f"{stage}.json").unlink()
        assert json.loads(without(stage, run, "--json"))["reused"] is False
    assert json.loads(without("validate", "svhn", "--json"))["records"] == 299
    assert run in without("runs", "list")
    without("store", "verify")
    error = without("convert", "svhn", "--source", "raw", code=2)
    assert "there is no data set 'svhn'" in error


def test_a_damaged_file_is_one_line(package: Path, work: Path, tmp_path: Path) -> None:
    whole = (work / "raw" / "train_32x32.mat").read_bytes()
    (tmp_path / "test_32x32.mat").write_bytes((work / "raw" / "test_32x32.mat").read_bytes())
    for damaged in (whole[:5000], b"no MATLAB" * 100, b""):
        (tmp_path / "train_32x32.mat").write_bytes(damaged)
        error = podline(tmp_path, package, "convert", "svhn", "--source", str(tmp_path), code=3)
        assert re.search(r"train_32x32\.mat cannot be read as images: .+; restore the file", " ".join(error.split()))
        assert "Traceback" not in error


def test_it_is_in_the_form_of_its_kind(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.known("svhn") is None
    monkeypatch.syspath_prepend(package)
    assert datasets.find("svhn").kind == "classification"
    assert "svhn" in TrainingForm.model_json_schema()["properties"]["recipe"]["enum"]
    assert TrainingForm(recipe="svhn", source="raw").training_recipe().dataset == "svhn"
