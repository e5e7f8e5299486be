"""A kind of an installed package whose target is a number: no module of Podline's knows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_dataset import seal
from support.extending import install

from podline import cli
from podline.beam_jobs.conversion import convert
from podline.data.reader import open_split
from podline.data.records import place_of
from podline.datasets.fingerprint import fingerprint, source_of
from podline.datasets.validation import validate
from podline.documents.manifest import read_manifest
from podline.errors import ArtifactError, SettingsError, SourceError
from podline.kinds.table import text_targets
from podline.progress import silent
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ConvertSpec, ValidateSpec
from podline.store.opening import open_store

KIND = '''
"""One number for each image."""

import numpy as np

from podline.data.records import Feature
from podline.kinds.classification.kind import Classification
from podline.kinds.contract import TextTargets


class NumberTargets(TextTargets):
    def text(self, value, class_names=()):
        if not np.isfinite(number := float(value)):
            raise ValueError(f"has the number {number} vs a finite one")
        return repr(number)

    def fields(self, class_names):
        return (Feature("number", "float32", ()),)

    def arrays(self, texts, class_names):
        return {"number": np.array([float(text) for text in texts], np.float32)}

    def words(self, records, class_names):
        return [f"{number:g}" for number in records["number"].tolist()]

    def check(self, records, manifest):
        wrong = np.flatnonzero(~np.isfinite(records["number"]))
        return (int(wrong[0]), f"has number={records['number'][wrong[0]]} vs a finite one") if wrong.size else None


class Number(Classification):
    name = "number"

    def targets(self):
        return NumberTargets()
'''
AGES = '''
"""Ages of faces."""

import numpy as np

from podline.data.sources.decoded import decoded_source
from podline.recipes.datasets import DataSet

AGES = DataSet("ages", open="ages:open_ages", kind="number")


def open_ages(dataset, source, settings, work):
    return decoded_source(dataset, source, {"train": ["train.npz"], "test": ["test.npz"]}, (), read, work)


def read(file):
    with np.load(file) as content:
        yield from zip(content["images"], content["ages"], strict=True)
'''
ENTRY_POINTS = '[project.entry-points."podline.kinds"]\nnumber = "numbers_kind:Number"\n'
DATA_SET = '[project.entry-points."podline.datasets"]\nages = "ages:AGES"\n'
RANDOM = np.random.default_rng(0)
IMAGES = {
    "train": RANDOM.integers(0, 256, (300, 6, 5, 1), np.uint8),
    "test": RANDOM.integers(0, 256, (50, 6, 5, 1), np.uint8),
}
NUMBERS = {name: RANDOM.normal(0, 40, len(images)) for name, images in IMAGES.items()}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of raw files, where the package is installed."""
    site = install(tmp_path_factory.mktemp("site"), {"numbers_kind": KIND, "ages": AGES}, ENTRY_POINTS + DATA_SET)
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(site)
        installed.setenv("PYTHONPATH", str(site))  # for the children that read files
        yield written(tmp_path_factory.mktemp("raw"), NUMBERS)


def written(folder: Path, numbers: dict[str, np.ndarray], images: dict[str, np.ndarray] = IMAGES) -> Path:
    for name, values in numbers.items():
        np.savez(folder / f"{name}.npz", images=images[name], ages=values)
    return folder


def spec_of(root: Path, source: Path) -> ConvertSpec:
    return ConvertSpec(root=str(root), dataset="ages", source=str(source), shard_bytes=10_000)


def validation_of(spec: ConvertSpec, found: str) -> ValidateSpec:
    folder = f"datasets/ages/{found}"
    return ValidateSpec(
        root=spec.root,
        dataset="ages",
        fingerprint=found,
        manifest_sha256=manifest_sha256(open_store(spec.root), folder),
        deep=True,
    )


def test_every_record_has_the_number_of_its_image(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(tmp_path / "root", raw)
    found, store = convert(spec, silent()), open_store(spec.root)
    manifest = read_manifest(store, found.folder)
    assert (manifest.kind, manifest.class_names, manifest.facts) == ("number", (), {})
    assert [(field.name, field.dtype, field.shape) for field in manifest.fields] == [
        ("image", "uint8", (6, 5, 1)),
        ("number", "float32", ()),
    ]
    assert {(split.class_counts, len(split.shards) > 1) for split in manifest.splits} == {((), True), ((), False)}
    for name, images in IMAGES.items():
        reader = open_split(store, found.folder, manifest, name)
        records = reader.gather(np.arange(len(reader)))
        stored = {image.tobytes(): number for image, number in zip(records["image"], records["number"], strict=True)}
        assert stored == {
            image.tobytes(): np.float32(number) for image, number in zip(images, NUMBERS[name], strict=True)
        }
    assert validate(validation_of(spec, found.fingerprint), silent()).records == 350
    assert not list(store.local(found.folder).glob("*.labels.txt"))
    for words in (["data", "show", "ages"], ["data", "list"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--root", spec.root])
        printed = capsys.readouterr().out
        assert (ended.value.code, "ages" in printed, "class" in printed) == (0, True, False)


def test_a_number_that_cannot_be_is_named_by_file_and_image(raw: Path, tmp_path: Path) -> None:
    numbers = {name: values.copy() for name, values in NUMBERS.items()}
    numbers["test"][7] = np.nan
    spec = spec_of(tmp_path / "root", written(tmp_path, numbers))
    with pytest.raises(SourceError, match=r"test\.npz: image 7 has the number nan vs a finite one"):
        source_of(spec, open_store(spec.root))


def test_one_image_with_two_numbers_is_told(raw: Path, tmp_path: Path) -> None:
    images = {name: values.copy() for name, values in IMAGES.items()}
    images["train"][1] = images["train"][0]
    spec = spec_of(tmp_path / "root", written(tmp_path, NUMBERS, images))
    assert convert(spec, silent()).contradicting == {"train": 2}
    images["train"][:8:2] = images["train"][1:8:2]
    written(tmp_path, NUMBERS, images)
    first, second = (f"{NUMBERS['train'][place]:g}" for place in (0, 1))
    pair = rf"train\.npz\[0\] is {first} and train\.npz\[1\] is {second}"
    with pytest.raises(SourceError, match=rf"ages: 8 of the 300 records of the train split .* another label \({pair}"):
        convert(spec, silent())


def test_a_record_whose_number_cannot_be_is_named_with_its_place(raw: Path, tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "root", raw)
    found, store = convert(spec, silent()), open_store(spec.root)
    manifest = read_manifest(store, found.folder)
    shard, frame = manifest.split("train").shards[1], manifest.record_length + 16
    file = store.local(f"{found.folder}/{shard.file}")
    content = np.fromfile(file, np.uint8).reshape(-1, frame)
    content[3, place_of(manifest.field("number"))] = 255
    content.tofile(file)
    seal(spec.root, "ages", found.fingerprint)
    with pytest.raises(
        ArtifactError, match=rf"{shard.file}: record 3, at byte {3 * frame}, has number=nan vs a finite"
    ):
        validate(validation_of(spec, found.fingerprint), silent())


def test_the_code_of_a_kind_s_targets_is_in_the_fingerprint(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "root", tmp_path)
    prints = []
    for number, code in enumerate((KIND, KIND.replace("One number", "A number"), KIND.replace("np.float32", "'f4'"))):
        site = install(tmp_path / f"{number}", {"numbers_kind": code, "ages": AGES}, ENTRY_POINTS + DATA_SET)
        with pytest.MonkeyPatch.context() as installed:
            installed.syspath_prepend(site)
            for name in ("numbers_kind", "ages"):
                installed.delitem(sys.modules, name, raising=False)
            prints.append(fingerprint(spec, ()))
    assert prints[0] == prints[1] != prints[2]


def test_people_are_not_made_of_texts() -> None:
    with pytest.raises(SettingsError, match="records of the kind pose are not made of a text for each image"):
        text_targets("pose")
