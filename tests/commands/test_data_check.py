"""``podline data``: what a conversion would make of images, and what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from drawn_images import as_folders, as_table, drawn, encoded, images
from PIL import Image
from small_coco import publish_people
from small_dataset import publish_dataset

from podline.cli import cli
from podline.errors import SourceError

pytestmark = pytest.mark.usefixtures("parsed_here")


def check(source: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["data", "check", str(source), "--root", str(source.with_name("root")), *options])


def test_what_a_conversion_would_make_of_images(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    (folder / "cat" / "notes.txt").write_text("no image")
    sheets = ("--sheet", f"{tmp_path}/sheet.png", "--near-duplicates", f"{tmp_path}/pairs.png")
    said = check(folder, "--set", "conversion.side=16", *sheets)
    assert said.exit_code == 0, said.output
    assert "layout: folders, <class>/; 3 classes, " in said.stdout
    assert "read 61 = written 60 + quarantined 1" in said.stdout
    assert "left out: 1 file: is not a JPEG, PNG, WebP, BMP, TIFF or GIF (cat/notes.txt)" in said.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 500
    assert "no near-duplicates; " in said.stdout
    assert not (tmp_path / "pairs.png").exists()
    document = json.loads(check(folder, "--set", "conversion.side=16", "--json").stdout)
    assert sum(document["sizes"].values()) == sum(document["splits"].values()) == 60
    assert document["classes"]["cat"]["train"] + document["classes"]["cat"]["test"] == 20
    assert document["left_out"][0]["record"] == "cat/notes.txt"


def test_a_class_without_a_test_image_is_named(tmp_path: Path) -> None:
    for split, names in {"train": ("cat", "dog"), "test": ("cat",)}.items():
        for name in names:
            (tmp_path / "raw" / split / name).mkdir(parents=True)
            for number in range(3):
                colour = (40 * number, 120 if name == "cat" else 20, 200 if split == "test" else 90)
                Image.new("RGB", (16, 16), colour).save(tmp_path / "raw" / split / name / f"{number}.png")
    said = check(tmp_path / "raw", "--set", "conversion.side=16")
    assert "no test image of dog: no figure covers it; give a column of splits" in said.stdout


def test_a_source_that_would_be_refused(tmp_path: Path) -> None:
    folder = as_folders(as_table(tmp_path / "raw", images()), images())
    refused = check(folder)
    assert refused.exit_code != 0
    assert "several layouts" in str(refused.output) + str(refused.exception)
    assert check(folder, "--layout", "table").exit_code == 0


def test_near_duplicates_are_listed_and_drawn_though_they_would_be_refused(tmp_path: Path) -> None:
    for split, kind in (("train", "PNG"), ("test", "JPEG")):
        classes = {
            name: {f"{number}.{kind}": encoded(drawn(number, (40, 40)), kind) for number in range(first, 10, 2)}
            for first, name in enumerate(("$x$ cat", "dog"))
        }
        as_folders(tmp_path / "raw" / split, classes)
    sheet = tmp_path / "drawn" / "pairs.png"
    refused = check(tmp_path / "raw", "--near-duplicates", str(sheet), "--json")
    assert isinstance(refused.exception, SourceError)
    assert "10 of the 10 test images" in str(refused.exception)
    found = json.loads(refused.stdout)["near_duplicates"]
    assert {(pair["test"], pair["train"], pair["train_class"]) for pair in found} >= {
        ("test/$x$ cat/4.JPEG", "train/$x$ cat/4.PNG", "$x$ cat"),
        ("test/dog/9.JPEG", "train/dog/9.PNG", "dog"),
    }
    with Image.open(sheet) as drawing:
        assert drawing.size[0] > 500


def test_a_recipe_is_another_name_of_its_data_set_and_what_is_there_instead_is_named(tmp_path: Path) -> None:
    def show(name: str) -> Result:
        return CliRunner().invoke(cli, ["data", "show", name, "--root", str(tmp_path)])

    publish_dataset(tmp_path)
    assert re.search("has no data set coco vs sample that are there; make one", str(show("coco_pose").exception))
    manifest = publish_people(tmp_path, dataset="coco")
    assert show("coco_pose").stdout == show("coco").stdout
    assert show("coco").stdout.startswith(f"coco {manifest.fingerprint}")
