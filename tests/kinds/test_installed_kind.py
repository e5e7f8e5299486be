"""A kind of an installed package, written from the docs: one number for each image, through the real commands."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from several_labels import png
from small_dataset import seal

from podline import measures
from podline.beam_jobs.conversion import convert
from podline.data.reader import open_split
from podline.data.records import place_of
from podline.datasets.fingerprint import fingerprint
from podline.documents.manifest import read_manifest
from podline.errors import SettingsError
from podline.kinds.by_example.answered import Answered
from podline.kinds.table import kind_named, text_targets
from podline.progress import silent
from podline.recipes import registry
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers", "few_draws")

PACKAGE = Path(__file__).parent / "number_kind"
MOST_FILES, MOST_LINES = 6, 250
Podline = Callable[..., Any]


def install(site: Path) -> None:
    """Install the package as pip would."""
    shutil.copytree(PACKAGE / "number_kind", site / "number_kind", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    about = site / f"number_kind-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    tables = (f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in rows.items()) for group, rows in groups)
    (about / "entry_points.txt").write_text("".join(tables))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder where the package is installed."""
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(folder)
        installed.setenv("PYTHONPATH", str(folder))  # for the children that read files
        measures.loaded.cache_clear()
        yield folder
    measures.loaded.cache_clear()


def drawn(folder: Path, count: int = 600, **changed: Any) -> Path:
    """Noise with a bright bar, and in a table 2.5 times its height and a little noise.

    Args:
        folder: a new one.
        count: of images, of which each third is a test image.
        changed: numbers by the image's name.
    """
    random, rows = np.random.default_rng(3), list[dict[str, Any]]()
    (folder / "pictures").mkdir(parents=True)
    for number in range(count):
        pixels, height = random.integers(0, 60, (16, 16, 3)).astype(np.uint8), int(random.integers(17))
        pixels[16 - height :, 4:12] += 180
        (folder / "pictures" / f"n{number}.png").write_bytes(png(pixels))
        value = changed.get(f"n{number}", round(2.5 * height + random.normal(0, 0.2), 3))
        rows.append({"file": f"pictures/n{number}.png", "label": value, "split": "train" if number % 3 else "test"})
    with (folder / "numbers.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def spec_of(root: Path, source: Path) -> ConvertSpec:
    given = {"root": str(root), "dataset": "numbers", "source": str(source), "side": 16, "shard_bytes": 100_000}
    return ConvertSpec.model_validate(given)


def test_the_package_is_small() -> None:
    files = [file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert len(files) <= MOST_FILES
    assert sum(len(file.read_text().splitlines()) for file in files) <= MOST_LINES


def test_the_page_shows_the_package() -> None:
    page = (PACKAGE.parents[2] / "docs" / "how-to" / "kind.md").read_text()
    modules = {f"```python\n{file.read_text()}```" for file in (PACKAGE / "number_kind").glob("*.py")}
    assert modules == set(re.findall(r"```python\n.*?```", page, re.DOTALL))
    assert re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0] in (PACKAGE / "pyproject.toml").read_text()


def test_it_goes_from_a_table_of_numbers_to_a_champion(
    site: Path, podline: Podline, stages_here: None, tmp_path: Path
) -> None:
    root, source = tmp_path / "root", drawn(tmp_path / "raw")

    def said(*command: object, code: int = 0) -> str:
        answer = podline(*command, "--root", root)
        assert answer.code == code, answer
        return answer.out + answer.err

    said("convert", "numbers", "--source", source, "--side", 16)
    assert "class" not in said("data", "show", "numbers")
    said("validate", "numbers", "--deep")
    trained = (said("train", "numbers", "--steps", steps, "--seed", seed) for seed, steps in enumerate((60, 250, 5)))
    first, better, worse = (re.findall(r"numbers-[0-9a-f]{12}", told)[-1] for told in trained)
    for run, promoted in ((first, 0), (better, 0), (worse, 11)):
        assert "mean absolute error" in said("evaluate", run)
        verdict = said("models", "promote", run, code=promoted)
        assert "sanity check" not in verdict
    assert "mean absolute error" in verdict
    assert "worse beyond chance" in verdict
    said("report", better)
    said("report", worse)
    store = open_store(str(root))
    folder = f"runs/{better}"
    document = json.loads(store.read_bytes(f"{folder}/evaluation.json"))
    answers = Answered.read(store, folder)
    errors, metrics = answers.answers - answers.labels, document["trained"]["metrics"]
    assert metrics["mae"]["value"] == pytest.approx(np.abs(errors).mean())
    assert metrics["r2"]["value"] == pytest.approx(1 - (errors**2).sum() / (answers.labels.var() * len(errors)))
    median = np.abs(np.median(answers.labels) - answers.labels).mean()
    assert metrics["mae"]["low"] < metrics["mae"]["value"] < metrics["mae"]["high"] < median
    assert document["guessing"]["value"] == pytest.approx(median)
    page = store.read_bytes(f"{folder}/report.html").decode()
    assert all(words in page for words in ("mean absolute error", "R²", "Answers and truth", "true number"))
    assert "worse" in store.read_bytes(f"runs/{worse}/report.html").decode()
    why = said("runs", "compare", worse, "--why")
    assert re.search(r"higher mean absolute error than \S+, .*lost", why), why
    picture = source / "pictures" / "n0.png"
    line = said("models", "predict", better, picture)
    truth = next(csv.DictReader((source / "numbers.csv").read_text().splitlines()))["label"]
    assert abs(float(re.findall(r"n0\.png: (\S+)", line)[0]) - float(truth)) < 5
    said("data", "preview", "numbers", "--run", better, "--out", tmp_path / "sheet.png")
    assert "mean absolute error" in said("runs", "list")


def test_every_record_has_the_number_of_its_image(site: Path, parsed_here: None, tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "root", drawn(tmp_path / "raw", 90))
    found, store = convert(spec, silent()), open_store(spec.root)
    manifest = read_manifest(store, found.folder)
    assert (manifest.kind, manifest.class_names, manifest.facts) == ("number", (), {})
    assert [(field.name, field.dtype, field.shape) for field in manifest.fields] == [
        ("image", "uint8", (16, 16, 3)),
        ("number", "float32", ()),
    ]
    reader = open_split(store, found.folder, manifest, "train")
    records = reader.gather(np.arange(len(reader)))
    heights = (records["image"][:, :, 8, 0] > 120).sum(axis=1)
    assert len(reader) == 60
    assert np.abs(records["number"] - 2.5 * heights).max() < 1
    assert not list(store.local(found.folder).glob("*.labels.txt"))


def test_a_number_that_cannot_be_is_named_by_its_row(
    site: Path, podline: Podline, stages_here: None, parsed_here: None, tmp_path: Path
) -> None:
    source = drawn(tmp_path / "raw", 30, n7="tall", n8="nan")
    told = podline("convert", "numbers", "--source", source, "--side", 16, "--root", tmp_path / "root")
    assert (told.code, "has the number nan vs a finite one" in told.err) == (3, True), told


def test_a_record_whose_number_cannot_be_is_named_with_its_place(
    site: Path, podline: Podline, stages_here: None, parsed_here: None, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path / "root", drawn(tmp_path / "raw", 90))
    found, store = convert(spec, silent()), open_store(spec.root)
    manifest = read_manifest(store, found.folder)
    shard, frame = manifest.split("train").shards[0], manifest.record_length + 16
    file = store.local(f"{found.folder}/{shard.file}")
    content = np.fromfile(file, np.uint8).reshape(-1, frame)
    content[3, place_of(manifest.field("number"))] = 255
    content.tofile(file)
    seal(spec.root, "numbers", found.fingerprint)
    told = podline("validate", "numbers", "--deep", "--root", spec.root)
    assert f"record 3, at byte {3 * frame}, has number=nan vs a finite one" in told.err


def test_the_code_of_a_kind_s_targets_is_in_the_fingerprint(tmp_path: Path) -> None:
    spec, prints = spec_of(tmp_path / "root", tmp_path), list[str]()
    for number, change in enumerate((("", ""), ("One number", "A number"), ("np.float32", "'f4'"))):
        (folder := tmp_path / f"{number}").mkdir()
        install(folder)
        records = folder / "number_kind" / "records.py"
        records.write_text(records.read_text().replace(*change))
        with pytest.MonkeyPatch.context() as installed:
            installed.syspath_prepend(folder)
            for name in [name for name in sys.modules if name.startswith("number_kind")]:
                installed.delitem(sys.modules, name)
            kind_named.cache_clear()
            prints.append(fingerprint(spec, ()))
    kind_named.cache_clear()
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.usefixtures("site")
def test_a_kind_without_shares_of_targets_refuses_to_mix() -> None:
    numbers = registry.get("numbers")
    assert registry.override(numbers, {"augmentation.brightness": 0.1}).augmentation.colours == {"brightness": 0.1}
    words = "mixup=0.0 and cutmix=1.0 mix the targets .* the kind number of dataset=numbers cannot; leave them out"
    with pytest.raises(SettingsError, match=words):
        registry.override(numbers, {"augmentation.cutmix": 1})


def test_people_are_not_made_of_texts() -> None:
    with pytest.raises(SettingsError, match="records of the kind pose cannot be made from a text for each image"):
        text_targets("pose")
