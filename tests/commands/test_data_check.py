"""``podline data``: what a conversion would make of images, and what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from converted_images import converted
from drawn_images import as_folders, as_table, drawn, encoded, images
from PIL import Image
from small_coco import publish_people
from small_dataset import publish_dataset

from podline.base.errors import SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.data.identity import identified
from podline.data.people.sample import write_coco_sample
from podline.recipes import registry
from podline.stages.from_recipe import training_spec
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


def check(source: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["data", "check", str(source), "--root", str(source.with_name("root")), *options])


def test_a_check_says_what_a_conversion_would_make_of_images(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    (folder / "cat" / "notes.txt").write_text("no image")
    size = ("--set", "conversion.side=16", "--set", "conversion.test_share=0.3")
    sheets = ("--sheet", f"{tmp_path}/sheet.png", "--near-duplicates", f"{tmp_path}/pairs.png")
    said = check(folder, *size, *sheets)
    assert said.exit_code == 0, said.output
    assert "layout: folders, <class>/; 3 classes, " in said.stdout
    assert "read 61 = written 60 + quarantined 1" in said.stdout
    assert "left out: 1 file: is not a JPEG, PNG, WebP, BMP, TIFF or GIF (cat/notes.txt)" in said.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 500
    assert "no near-duplicates; " in said.stdout
    assert not (tmp_path / "pairs.png").exists()
    document = json.loads(check(folder, *size, "--json").stdout)
    assert sum(document["sizes"].values()) == sum(document["splits"].values()) == 60
    assert document["classes"]["cat"]["train"] + document["classes"]["cat"]["test"] == 20
    assert document["left_out"][0]["record"] == "cat/notes.txt"
    as_table(folder, images())
    assert "several layouts" in str(check(folder).exception)
    assert "layout: table" in check(folder, "--layout", "table").stdout
    source = split_folders(tmp_path / "split", train=dict.fromkeys("abcdefgh", 2), test={"a": 3})
    said = check(source, "--set", "conversion.side=16").stdout
    assert "no test image of b, c, d, e, f and 2 more: no evaluation covers these classes; give a column" in said


def split_folders(folder: Path, **splits: dict[str, int]) -> Path:
    """``<split>/<class>/``, with numbers of images that differ from each other."""
    number = 0
    for split, classes in splits.items():
        for name, count in classes.items():
            as_folders(folder / split, {name: {f"{at}.png": encoded(drawn(number + at)) for at in range(count)}})
            number += count
    return folder


def test_a_test_split_that_can_prove_nothing_is_refused_by_the_check_and_before_the_training(tmp_path: Path) -> None:
    source = split_folders(tmp_path / "raw", train={"ant": 9, "bee": 9}, test={"ant": 5, "bee": 1})
    words = (
        "the test split can prove nothing: always predicting 'ant', the class of 5 of 6 images, may be right for up to "
        "100.0 %, so even 6 of 6 correct answers are no better than guessing; 24 test images would be enough: give more"
    )
    refused = check(source, "--set", "conversion.side=16")
    assert "bee" in refused.stdout
    assert words in str(refused.exception)
    manifest = converted(tmp_path / "root", source)
    with pytest.raises(SourceError, match=words):
        training_spec(open_store(str(tmp_path / "root")), registry.get("images"), manifest.fingerprint, "cpu")
    as_folders(source / "test", {"bee": {f"more{at}.png": encoded(drawn(100 + at)) for at in range(4)}})
    found = check(source, "--set", "conversion.side=16")
    assert found.exit_code == 0
    assert "the test split is small: always predicting 'ant', the class of 5 of 10 images" in found.stdout
    told: list[str] = []
    manifest = converted(tmp_path / "root", source)
    training_spec(open_store(str(tmp_path / "root")), registry.get("images"), manifest.fingerprint, "cpu", told.append)
    assert any("the test split is small" in line for line in told)


def test_keypoints_of_which_too_much_is_left_out_are_refused_as_by_the_conversion(tmp_path: Path) -> None:
    source = write_coco_sample(tmp_path / "raw", train=6, test=4)
    for file in sorted((source / "train2017").iterdir())[:3]:
        file.write_bytes(b"no picture")
    said = check(source)
    spec = ConvertSpec(root=str(tmp_path / "other"), dataset="keypoints.raw", source=str(source))
    with pytest.raises(SourceError) as refused:
        convert(spec, silent())
    assert str(said.exception) == str(refused.value)
    assert said.stdout.count("no picture") + said.stdout.count("left out: ") >= 3
    assert check(source, "--allow-left-out", "0.7").exit_code == 0


def test_classes_whose_images_are_all_held_out_are_named_with_the_remedy(tmp_path: Path) -> None:
    share, files = 0.3, {f"{at}.png": encoded(drawn(at)) for at in range(40)}
    sides: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
    for name, data in files.items():
        sides[int(identified(data).identity.hex()[:8], 16) < share * 2**32][name] = data
    train, test = (list(side.items()) for side in sides)
    source = as_folders(tmp_path / "raw", {"ant": dict(train[:4]), "fly": dict(test[:2])})
    said = "all usable images of the class 'fly' (2 images) are in the test split, none is left for training: give more"
    refused = check(source, "--set", f"conversion.test_share={share}")
    assert f"1 class with a training image, 'ant', vs 2 at least; {said}" in str(refused.exception)
    as_folders(source, {"bee": dict([*train[4:9], *test[2:]])})
    assert (
        f"{said} images, or another share of test images"
        in check(source, "--set", f"conversion.test_share={share}").stdout
    )


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
    assert re.search("has no data set coco, only sample; make one", str(show("coco_pose").exception))
    manifest = publish_people(tmp_path, dataset="coco")
    assert show("coco_pose").stdout == show("coco").stdout
    assert show("coco").stdout.startswith(f"coco {manifest.fingerprint}")


def test_a_sheet_is_not_written_into_a_folder_named_like_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = check(as_folders(tmp_path / "raw", images()), "--set", "conversion.side=16", "--sheet", "gs://bucket/x.png")
    assert str(said.exception).startswith("gs://bucket/x.png is not on this machine; give a local path")
    assert not (tmp_path / "gs:").exists()


@pytest.mark.parametrize("command", [["data", "check", ""], ["convert", "images", "--source", ""]])
def test_an_empty_source_is_not_the_current_folder(tmp_path: Path, command: list[str]) -> None:
    said = CliRunner().invoke(cli, [*command, "--root", str(tmp_path / "root")])
    assert isinstance(said.exception, SourceError)
    assert str(said.exception).startswith("got an empty source, expected a folder or a file")
