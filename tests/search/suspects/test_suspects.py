"""A user's walk: suspects are found, reviewed, applied, and the next conversion has the right labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from drawn_images import as_folders, encoded
from dying_runs import Killed
from parsing_here import parsing_here

pytest.importorskip("cleanlab", reason="the extra suspects is not installed")

from podline.base.errors import SettingsError, StoreError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.identity import identified
from podline.data.reader import open_split
from podline.data.versions.fingerprint import find_converted
from podline.documents.manifest import TRAINING, read_manifest
from podline.documents.suspects import newest_suspects
from podline.ledger.inventory import verification
from podline.recipes import datasets
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe, ScheduleSettings
from podline.search.suspects.finding import find_suspects
from podline.search.suspects.folds import fold_specs, suspects_spec
from podline.search.suspects.precision import judged
from podline.stages.specs import ConvertResult, ConvertSpec, TrainResult, TrainSpec
from podline.stages.suspects import SuspectsSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train

NAME = "images.shades"
CLASSES = ("dark", "grey", "light")
FLIPPED = 12
RECIPE = Recipe(
    name=NAME,
    dataset=NAME,
    model=ModelSettings(kind="linear"),
    batch_size=32,
    duration=Duration(epochs=8),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.02),
    evaluate_every=None,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Images of three shades; some lie in the wrong folder, and one is there twice, brighter by a shade."""
    random = np.random.default_rng(0)
    found: dict[str, dict[str, bytes]] = {name: {} for name in CLASSES}
    for number in range(600):
        shade = number % 3
        pixels = (60 + 65 * shade + random.normal(0, 25, (8, 8, 3))).clip(0, 255).astype(np.uint8)
        folder = CLASSES[(shade + 1) % 3 if number < FLIPPED else shade]
        found[folder][f"{number:03}.png"] = encoded(pixels)
        if number == 30:
            found["light"]["again.png"] = encoded((pixels + 3).clip(0, 255).astype(np.uint8))
    return as_folders(tmp_path / "raw", found)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with parsing_here():
        yield open_store(str(tmp_path / "root"))


def conversion(store: Store, source: Path) -> ConvertSpec:
    settings = datasets.settings_of(NAME, {"side": 8})
    return ConvertSpec(root=store.uri, dataset=NAME, source=str(source), settings=settings)


def wrongly_labelled(store: Store, converted: ConvertResult) -> set[bytes]:
    """The pixels of the images of all splits whose class is not their shade."""
    manifest, found = read_manifest(store, converted.folder), set[bytes]()
    for split in manifest.splits:
        reader = open_split(store, converted.folder, manifest, split.name)
        records = reader.gather(np.arange(len(reader)))
        shades = np.rint((records["image"].mean((1, 2, 3)) - 60) / 65)
        found |= {image.tobytes() for image in records["image"][shades != records["label"]]}
    return found


def suspects(store: Store, train: Callable[[TrainSpec], TrainResult], **values: Any) -> SuspectsSpec:
    return suspects_spec(store, fold_specs(store, RECIPE, silent(), parts=3), train, silent(), **values)


def test_wrong_labels_are_found_reviewed_and_corrected(
    tmp_path: Path, store: Store, source: Path, podline: Any
) -> None:
    before = convert(conversion(store, source), silent())
    spec = suspects(store, partial(train, reporter=silent()), precision=0.8)
    result = find_suspects(spec, silent())
    _, document = newest_suspects(store, NAME)
    assert [split.precision is not None for split in document.splits if split.split == TRAINING] == [True]
    assert [each.repeats.partition("[")[0] for split in document.splits for each in split.pairs] == [TRAINING]
    assert result.sentences[0].startswith("train: ")
    assert "are wrong; 1 near-duplicates with different labels" in result.sentences[0]
    assert b"<img" in store.read_bytes(result.page)
    assert verification.verify(store, silent()).notes == []

    table = tmp_path / "review.csv"
    assert podline("data", "review", NAME, "--out", table, "--root", store.uri).code == 0
    assert table.with_suffix(".html").read_bytes() == store.read_bytes(result.page)
    rows = pd.read_csv(table)
    assert len(rows) == result.suspects >= FLIPPED / 2
    names = {identified(file.read_bytes()).identity.hex(): str(file.relative_to(source)) for file in source.glob("*/*")}
    assert [names[image] for image in rows["image"]] == rows["file"].tolist()
    assert f"<span>{rows['file'][0]}</span>" in table.with_suffix(".html").read_text()
    rows.assign(decision="relabel").to_csv(table, index=False)
    said = podline("data", "apply", table, "--by", "ann", "--json", "--root", store.uri)
    assert said.code == 0
    assert json.loads(said.out)["relabel"] == len(rows)

    assert find_converted(conversion(store, source), silent()) is None
    after = convert(conversion(store, source), silent())
    assert after.fingerprint != before.fingerprint
    assert read_manifest(store, after.folder).counted["relabelled by a review"] == len(rows)
    assert len(wrongly_labelled(store, after)) < len(wrongly_labelled(store, before)) / 2
    assert find_converted(conversion(store, source), silent()).fingerprint == after.fingerprint
    assert verification.verify(store, silent()).problems == []


def test_a_pass_that_was_killed_goes_on_with_the_models_that_are_there(store: Store, source: Path) -> None:
    convert(conversion(store, source), silent())
    asked = list[str]()

    def train_one(spec: TrainSpec) -> TrainResult:
        asked.append(spec.recipe.without_part)
        if len(asked) == 2:
            raise Killed
        return train(spec, silent())

    with pytest.raises(Killed):
        suspects(store, train_one)
    first = suspects(store, partial(train, reporter=silent()))
    assert asked == ["0/3", "1/3"]
    assert first == suspects(store, partial(train, reporter=silent()))
    assert len(set(first.runs)) == 3


def test_a_published_data_set_and_too_many_parts_are_refused(
    tmp_path: Path, store: Store, source: Path, podline: Any
) -> None:
    with pytest.raises(StoreError, match="has no search for wrong labels"):
        newest_suspects(store, NAME)
    convert(conversion(store, source), silent())
    with pytest.raises(SettingsError, match="got parts=9000, expected at most the"):
        fold_specs(store, RECIPE, silent(), parts=9000)
    table = tmp_path / "review.csv"
    table.write_text(f"decision,new_label,label,image,dataset\ndrop,,cat,{'a' * 64},cifar10\n")
    said = podline("data", "apply", table, "--root", store.uri)
    assert said.code == 2
    assert "expected a data set of your own images" in said.err


TEN = 10


def sure_model(count: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """True labels, and probabilities of a model that is right nine times of ten, and as sure as it is right."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, (count, TEN)) + 6 * np.eye(TEN)[random.integers(0, TEN, count)]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    drawn = (probabilities.cumsum(axis=1) > random.random((count, 1))).argmax(axis=1)
    return drawn, probabilities


def test_the_stated_precision_covers_the_true_one_and_clean_sets_have_no_suspects() -> None:
    covered = 0
    for seed in range(6):
        labels, probabilities = sure_model(4000, seed)
        random, wrong = np.random.default_rng(100 + seed), np.zeros(len(labels), np.bool_)
        wrong[random.choice(len(labels), 80, replace=False)] = True
        given = np.where(wrong, (labels + random.integers(1, TEN, len(labels))) % TEN, labels)
        found = judged(given, probabilities, 0.8)
        assert found.precision.value >= 0.8
        assert len(found.suspects) > 10
        covered += found.precision.low <= wrong[found.suspects].mean() <= found.precision.high
        assert found.expected.low <= 80 * 1.3
        assert found.expected.high >= 80 * 0.7
    assert covered >= 5  # of intervals of 95 %
    for seed in range(4):
        clean = judged(*sure_model(3000, 50 + seed), 0.8)
        assert (clean.precision, len(clean.suspects)) == (None, 0)
        assert clean.expected.low <= 6
