"""The kinds of docs/how-to/kind.md in installed packages, a number and a mask for each image, by the real commands."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_images import encoded
from small_dataset import seal
from support.extending import PAGES, install

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.contract.kind import kind_named
from podline.data.reader import open_split
from podline.data.records import place_of
from podline.data.versions.fingerprint import fingerprint
from podline.documents.manifest import read_manifest
from podline.kinds.by_example.answered import Answered
from podline.recipes import measures, registry
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers", "few_draws")

PAGE = (PAGES / "kind.md").read_text()
CODE, TOML = (re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("python", "toml"))
NAMES = re.findall(r"`(\w+_kind)\.py`:", PAGE)
Podline = Callable[..., Any]


def install_kinds(site: Path, before: str = "", after: str = "") -> None:
    """Install the page's packages, with other text in the first one."""
    for name, code, toml in zip(NAMES, CODE, TOML, strict=True):
        install(site, {name: code.replace(before, after)}, toml)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package, as this process and its children know it."""
    install_kinds(folder := tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(folder)
        installed.setenv("PYTHONPATH", str(folder))  # for the children that read files
        measures.loaded.cache_clear()
        yield
    measures.loaded.cache_clear()


def as_source(folder: Path, table: str, images: Iterable[tuple[np.ndarray, object]]) -> Path:
    """Write images and a table with the label of each; each third is a test image."""
    (folder / "pictures").mkdir(parents=True)
    lines = ["file,label,split"]
    for number, (pixels, label) in enumerate(images):
        (folder / "pictures" / f"n{number}.png").write_bytes(encoded(pixels))
        lines.append(f"pictures/n{number}.png,{label},{'train' if number % 3 else 'test'}")
    (folder / table).write_text("\n".join(lines))
    return folder


def drawn(folder: Path, count: int = 600, **changed: str) -> Path:
    """Noise with a bright bar, and in a table 2.5 times its height and a little noise.

    Args:
        folder: a new one.
        count: of images, of which each third is a test image.
        changed: labels by the image's name.
    """
    random, images = np.random.default_rng(3), list[tuple[np.ndarray, object]]()
    for number in range(count):
        pixels, height = random.integers(0, 60, (16, 16, 3)).astype(np.uint8), int(random.integers(17))
        pixels[16 - height :, 4:12] += 180
        value = round(2.5 * height + random.normal(0, 0.2), 3)
        images.append((pixels, changed.get(f"n{number}", value)))
    return as_source(folder, "numbers.csv", images)


def masked(folder: Path, count: int = 240) -> Path:
    """Noise with a bright rectangle, and in a table the runs of its pixels."""
    random, images = np.random.default_rng(5), list[tuple[np.ndarray, object]]()
    for _ in range(count):
        pixels, mask = random.integers(0, 60, (24, 24, 3)).astype(np.uint8), np.zeros((24, 24), bool)
        (top, left), (height, width) = random.integers(0, 14, 2), random.integers(6, 11, 2)
        mask[top : top + height, left : left + width] = True
        pixels[mask] += 180
        runs = [f"{24 * row + left} {width}" for row in range(top, top + height)]
        images.append((pixels, f"24 24 {' '.join(runs)}"))
    return as_source(folder, "masks.csv", images)


def spec_of(root: Path, source: Path) -> ConvertSpec:
    given = {"root": str(root), "dataset": "numbers", "source": str(source), "side": 16, "shard_bytes": 100_000}
    return ConvertSpec.model_validate(given)


@pytest.fixture
def said(podline: Podline, stages_here: None, tmp_path: Path) -> Callable[..., str]:
    """What a command says of the test's store, which ends with a code."""

    def said(*command: object, code: int = 0) -> str:
        answer = podline(*command, "--root", tmp_path / "root")
        assert answer.code == code, answer
        return answer.out + answer.err

    return said


@pytest.mark.usefixtures("site")
def test_it_goes_from_a_table_of_numbers_to_a_champion(said: Callable[..., str], tmp_path: Path) -> None:
    source = drawn(tmp_path / "raw")
    said("convert", "numbers", "--source", source, "--side", 16)
    assert "class" not in said("data", "show", "numbers")
    trained = (said("train", "numbers", "--steps", steps, "--seed", seed) for seed, steps in enumerate((250, 5)))
    better, worse = (re.findall(r"numbers-[0-9a-f]{12}", told)[-1] for told in trained)
    for run, promoted in ((better, 0), (worse, 11)):
        assert "mean absolute error" in said("evaluate", run)
        verdict = said("models", "promote", run, code=promoted)
        assert "sanity check" not in verdict
        said("report", run)
    assert "refused from" in verdict
    store, folder = open_store(tmp_path / "root"), f"runs/{better}"
    document, answers = json.loads(store.read_bytes(f"{folder}/evaluation.json")), Answered.read(store, folder)
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
    assert re.search(r"(?s)worse in mean absolute error than \S+, .* examples lost", why), why
    line = said("models", "predict", better, source / "pictures" / "n0.png")
    truth = (source / "numbers.csv").read_text().splitlines()[1].split(",")[1]
    assert abs(float(re.findall(r"n0\.png: (\S+)", line)[0]) - float(truth)) < 5
    said("data", "preview", "numbers", "--run", better, "--out", tmp_path / "sheet.png")
    assert "mean absolute error" in said("runs", "list")


@pytest.mark.usefixtures("site")
def test_a_kind_with_a_network_of_its_own_finds_masks(said: Callable[..., str], tmp_path: Path) -> None:
    source = masked(tmp_path / "raw")
    said("convert", "masks", "--source", source, "--side", 24)
    run = re.findall(r"masks-[0-9a-f]{12}", said("train", "masks", "--steps", 80))[-1]
    assert "mean IoU" in said("evaluate", run)
    said("models", "promote", run)
    said("report", run)
    store, folder = open_store(tmp_path / "root"), f"runs/{run}"
    answers = Answered.read(store, folder)
    both = (answers.answers & answers.labels).sum((1, 2)) / (answers.answers | answers.labels).sum((1, 2))
    document = json.loads(store.read_bytes(f"{folder}/evaluation.json"))
    assert document["trained"]["metrics"]["iou"]["value"] == pytest.approx(both.mean())
    assert both.mean() > 0.7 > document["guessing"]["high"]
    assert "mean IoU" in store.read_bytes(f"{folder}/report.html").decode()
    assert re.search(r"n0\.png: \d+ of 256 cells", said("models", "predict", run, source / "pictures" / "n0.png"))


@pytest.mark.usefixtures("site", "parsed_here")
def test_every_record_has_the_number_of_its_image_and_one_that_cannot_be_is_named(
    said: Callable[..., str], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path / "root", drawn(tmp_path / "raw", 90))
    found, store = convert(spec, silent()), open_store(spec.root)
    manifest = read_manifest(store, found.folder)
    fields = [(field.name, field.dtype, field.shape) for field in manifest.fields]
    assert (manifest.kind, manifest.class_names) == ("number", ())
    assert fields == [("image", "uint8", (16, 16, 3)), ("number", "float32", ())]
    records = open_split(store, found.folder, manifest, "train").gather(np.arange(60))
    assert np.abs(records["number"] - 2.5 * (records["image"][:, :, 8, 0] > 120).sum(axis=1)).max() < 1
    shard, frame = manifest.split("train").shards[0], manifest.record_length + 16
    file = store.local(f"{found.folder}/{shard.file}")
    content = np.fromfile(file, np.uint8).reshape(-1, frame)
    content[3, place_of(manifest.field("number"))] = 255
    content.tofile(file)
    seal(spec.root, "numbers", found.fingerprint)
    told = said("validate", "numbers", "--deep", code=4)
    assert f"record 3, at byte {3 * frame}, has number=nan vs a finite one" in told
    odd = drawn(tmp_path / "odd", 30, n7="tall", n8="nan")
    assert "has the number nan vs a finite one" in said("convert", "numbers", "--source", odd, "--side", 16, code=3)


def test_the_code_of_a_kind_s_targets_is_in_the_fingerprint(tmp_path: Path) -> None:
    spec, prints = spec_of(tmp_path / "root", tmp_path), list[str]()
    for number, change in enumerate((("", ""), ("One number", "A number"), ("np.float32", "'f4'"))):
        install_kinds(tmp_path / f"{number}", *change)
        with pytest.MonkeyPatch.context() as installed:
            installed.syspath_prepend(tmp_path / f"{number}")
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
    words = "mixup=0.0 and cutmix=1.0 mix the targets .* the kind number of dataset=numbers cannot mix them"
    with pytest.raises(SettingsError, match=words):
        registry.override(numbers, {"augmentation.cutmix": 1})
