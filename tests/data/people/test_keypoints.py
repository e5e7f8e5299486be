"""Keypoints of one's own: what is found in annotations in COCO's format, whatever their joints."""

from __future__ import annotations

import json
import math
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cv2
import numpy as np
import pytest
from click.testing import CliRunner
from coco_files import people_in
from mice import HEIGHT, JOINTS, WIDTH, annotated, document, opened, written
from PIL import Image
from raw_cifar import convert_spec

from podline.base.errors import SettingsError, SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.data.letterbox import LetterBox
from podline.data.people.image import chosen
from podline.data.people.layouts import has_annotations
from podline.data.people.source import people_of
from podline.data.people.truth import read_truth
from podline.data.reader import SplitReader
from podline.documents.manifest import read_manifest
from podline.documents.skeleton import COCO, ONE, OTHER_SIGMA, SEVERAL, SUBJECTS
from podline.kinds.pose.augmentation import require_fit
from podline.recipes import registry
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


def test_one_subject_an_image_is_a_fact_unless_an_image_that_is_kept_has_a_second(tmp_path: Path) -> None:
    """A second one counts without joints, too; one in an image that is left out does not, nor does a missing one."""
    made = document()
    made["annotations"].pop()
    written(tmp_path / "one", made)
    (tmp_path / "one/images/mouse 3.png").unlink()
    made["annotations"].append({"id": 98, "image_id": 3, "category_id": 3, "keypoints": [9, 9, 2] * 5})
    assert opened(annotated(tmp_path / "one", made)).facts[SUBJECTS] == ONE
    made["annotations"].append({"id": 99, "image_id": 4, "category_id": 3, "bbox": [2, 2, 20, 20]})
    assert opened(written(tmp_path / "several", made)).facts[SUBJECTS] == SEVERAL


def test_joints_limbs_pairs_and_constants_are_those_of_the_category(tmp_path: Path) -> None:
    source = opened(written(tmp_path, document()))
    skeleton = source.skeleton
    assert skeleton.joints == skeleton.annotated == JOINTS
    assert skeleton.limbs[:3] == (("nose", "left_ear"), ("nose", "right_ear"), ("nose", "back"))
    assert len(skeleton.limbs) == 4, "the tail is joined to what is nearest on average"
    assert "tail" in skeleton.limbs[3]
    assert skeleton.mirrored == (("right_ear", "left_ear"),)
    assert skeleton.sigmas == (COCO.sigmas[0], COCO.sigmas[3], COCO.sigmas[4], OTHER_SIGMA, OTHER_SIGMA)
    assert sum(source.sizes.values()) == 20
    assert not source.quarantined
    assert any("limbs added between nearby joints" in note for note in source.words)
    given = opened(tmp_path, sigmas={"tail": 0.2}, mirrored=[["back", "tail"]]).skeleton
    assert (given.sigmas[-1], given.mirrored) == (0.2, (("back", "tail"),))
    with pytest.raises(SourceError, match="the settings name an unknown joint 'paw'; the joints are nose, left_ear"):
        opened(tmp_path, sigmas={"paw": 0.2})


@pytest.mark.parametrize(
    ("category", "joints", "limbs", "note"),
    [
        ({"keypoints": [], "skeleton": []}, tuple(f"joint{n}" for n in range(1, 6)), None, "joints have no names"),
        ({"skeleton": [[0, 1], [1, 0], [2, 2], [3, 4]]}, JOINTS, (("nose", "left_ear"), ("back", "tail")), "from 0"),
        ({"skeleton": [[1, 2], [4, 5]]}, JOINTS, (("nose", "left_ear"), ("back", "tail")), "limbs added"),
    ],
)
def test_what_categories_leave_out_is_made_up_for_and_told(
    tmp_path: Path, category: dict[str, Any], joints: tuple[str, ...], limbs: Any, note: str
) -> None:
    made = document()
    made["categories"][0] |= category
    source = opened(written(tmp_path, made))
    assert source.skeleton.joints == joints
    assert limbs is None or source.skeleton.limbs[: len(limbs)] == limbs
    assert len(source.skeleton.limbs) == 4, "every joint is reached, and no limb is twice"
    assert any(note in told for told in source.words), source.words


def test_categories_with_the_same_joints_are_learned_as_one_and_of_others_one_is_named(tmp_path: Path) -> None:
    made = document()
    rat = {"id": 4, "name": "rat", "keypoints": list(JOINTS), "skeleton": [[1, 2]]}
    made["categories"].append(rat)
    for annotation in made["annotations"][::2]:
        annotation["category_id"] = 4
    source = opened(written(tmp_path, made))
    assert source.skeleton.category == ""
    assert sum(bool(image.annotations) for images in people_in(source).values() for image in images) == 20
    rat["keypoints"][-1] = "paw"
    annotated(tmp_path, made)
    with pytest.raises(SourceError, match=r"2 categories have different joints: .*conversion.category=NAME"):
        opened(tmp_path)
    assert opened(tmp_path, category="rat").skeleton.joints[-1] == "paw"
    with pytest.raises(SourceError, match="the category 'cat' has no labelled keypoints; give one of mouse, rat"):
        opened(tmp_path, category="cat")


def of_category(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda made: made["categories"][0].update(changes)


def each(entries: str, change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    return lambda made: [change(entry) for entry in made[entries]] and None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            each("annotations", lambda one: one["keypoints"].__setitem__(slice(2, None, 3), [0] * 5)),
            "nothing to train: .*mice.json: 20 annotations, none .* labelled joint",
        ),
        (of_category(skeleton=[[1, 9]]), "skeleton is .* expected pairs of joints from 1 to 5"),
        (of_category(keypoints=["a", "a", "b", "c", "d"]), "'a' occurs 2 times, expected once"),
        *(
            (of_category(sigmas=[0.1] * 4 + bad), "the skeleton of its category is invalid: .*sigma")
            for bad in ([], [math.nan], [0])
        ),
        (of_category(keypoints=["a", "left\near", "b", "c", "d"]), "'left.*control .*U.000A"),
        (
            each("annotations", lambda one: one["keypoints"].__setitem__(slice(3), [one["keypoints"][:3]])),
            "has 5 names of keypoints, but its annotations have 4.33333 joints",
        ),
        (each("images", lambda entry: entry.update(file_name="gone.png")), "none of its images .gone.png"),
        (
            each("images", lambda entry: entry.pop("id")),
            r"mice.json lists no valid image: images\[0\]: its id is missing.*; correct the entries of its list images",
        ),
        (lambda made: made.update(images=[]), r"lists no valid image: annotations\[0\]: there is no image 1; correct"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_a_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    written(tmp_path, made := document())
    change(made)
    with pytest.raises(SourceError, match=problem) as error:
        opened(annotated(tmp_path, made))
    assert "\n" not in str(error.value)


def test_other_json_is_passed_over_and_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    written(tmp_path, document())
    (tmp_path / "package.json").write_text('{"name": "x"}')
    assert opened(tmp_path).skeleton.joints == JOINTS
    (tmp_path / "broken.json").write_text('{"images": [')
    with pytest.raises(SourceError, match=r"broken.json is not valid JSON .* move it away"):
        opened(tmp_path)
    for number, files in enumerate(("mice.json", "images/*.png")):
        for path in written(tmp_path / str(number), document()).glob(files):
            path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n")
        with pytest.raises(SourceError, match=r"Git LFS pointer, .*git lfs pull"):
            opened(tmp_path / str(number))


def test_names_say_which_file_is_tested_on(tmp_path: Path) -> None:
    written(tmp_path, document(), "annotations/mice_train.json")
    written(tmp_path, document(6, first=101), "annotations/mice_val.json")
    written(tmp_path, {**document(4, first=201), "annotations": []}, "annotations/mice_test.json")
    found = opened(tmp_path)
    assert found.sizes == {"train": 20, "test": 6}
    [line] = [line for line in found.words if line.startswith("not read: ")]
    assert line.endswith("mice_test.json: 0 annotations, none with a labelled joint")
    written(tmp_path, document(6, first=101), "annotations/more.json")
    with pytest.raises(SourceError, match="3 files of keypoints; expected one file, or files with train and with val"):
        opened(tmp_path)
    assert opened(written(tmp_path / "two", document(2))).sizes == {"train": 1, "test": 1}


def test_the_same_joints_as_cocos_are_cocos_people(tmp_path: Path) -> None:
    made = document()
    made["categories"][0] |= {"keypoints": list(COCO.annotated), "skeleton": [[16, 14]]}
    for annotation in made["annotations"]:
        annotation["keypoints"] = (annotation["keypoints"] * 4)[:51]
    assert opened(written(tmp_path, made)).skeleton == COCO.model_copy(update={"category": "mouse"})
    made["categories"][0]["name"] = "person"
    assert opened(written(tmp_path, made)).skeleton == COCO


def test_a_mirror_image_needs_to_know_left_and_right(tmp_path: Path) -> None:
    made = document()
    made["categories"][0]["keypoints"] = ["a", "b", "c", "d", "e"]
    spec = spec_of(tmp_path / "root", written(tmp_path / "raw", made))
    manifest = read_manifest(open_store(spec.root), convert(spec, silent()).folder)
    recipe = registry.override(registry.get("keypoints"), {"task.side": 64})
    require_fit(recipe, manifest)
    flipped = registry.override(recipe, {"task.augmentation.flip": True})
    with pytest.raises(SettingsError, match=r"flip=true needs to know left and right joints, .* keypoints/"):
        require_fit(flipped, manifest)


def spec_of(root: Path, source: Path, side: int = 64) -> ConvertSpec:
    given = {"dataset": "keypoints", "side": side, "max_people": 3, "shard_bytes": 1_000_000}
    return ConvertSpec.model_validate(convert_spec(root, source).model_dump() | given | {"source": str(source)})


def assert_joints_are_where_they_were(spec: ConvertSpec, annotations: dict[str, Any]) -> int:
    """Every labelled joint, beside what the file says; the number of them."""
    store = open_store(spec.root)
    result = convert(spec, silent())
    manifest = read_manifest(store, result.folder)
    sizes = {image["id"]: (image["width"], image["height"]) for image in annotations["images"]}
    wanted: dict[int, list[np.ndarray]] = {}
    for annotation in annotations["annotations"]:
        keypoints = np.reshape(annotation["keypoints"], (-1, 3)).astype(float)
        width, height = sizes[annotation["image_id"]]
        inside = (keypoints[:, :2] >= 0).all(axis=1) & (keypoints[:, 0] < width) & (keypoints[:, 1] < height)
        wanted.setdefault(annotation["image_id"], []).append(keypoints[(keypoints[:, 2] > 0) & inside])
    checked = 0
    for split in ("train", "test"):
        records = SplitReader(store.local(result.folder).joinpath, manifest, split)
        found = records.gather(np.arange(len(records)))
        for number, poses in zip(found["image_id"].ravel().tolist(), found["keypoints"], strict=True):
            box = LetterBox(*sizes[number], spec.settings.model_dump()["side"])
            joints = np.concatenate([pose[pose[:, 2] > 0] for pose in poses])
            places = box.joints_to_image(joints[:, :2])
            expected = np.concatenate(wanted.pop(number))[:, :2]
            assert len(places) == len(expected)
            apart = np.linalg.norm(places[:, None] - expected[None], axis=-1).min(axis=0)
            assert apart.max() < 0.02 / min(box.scale), "joints of records lie on a grid of 1/64 of a pixel"
            checked += len(expected)
        truth = read_truth(store, result.folder, manifest, split)
        assert truth["categories"][0]["keypoints"] == list(manifest.skeleton.annotated)
    assert not wanted
    return checked


def test_a_file_that_cannot_be_read_has_no_annotations(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("/proc/self/mem")  # its first byte cannot be read, even by root
    assert not has_annotations(tmp_path)


def test_data_check_says_what_a_conversion_would_make_of_keypoints(tmp_path: Path) -> None:
    command = ["data", "check", str(written(tmp_path / "mice", document())), "--root", str(tmp_path / "root")]
    said = CliRunner().invoke(cli, command, obj={}, catch_exceptions=False).stdout
    assert "5 joints: nose, left_ear, right_ear, back, tail" in said
    assert "read 20 = written 20" in said
    found = json.loads(CliRunner().invoke(cli, [*command, "--json"], obj={}, catch_exceptions=False).stdout)
    assert (found["joints"], sum(found["splits"].values()), found["left_out"]) == ([*JOINTS], 20, [])
    sheet = tmp_path / "sheet.png"
    CliRunner().invoke(cli, [*command, "--sheet", str(sheet)], obj={}, catch_exceptions=False)
    with Image.open(sheet) as drawn:
        assert drawn.size[0] > 500


@pytest.mark.parametrize(
    "named",
    [
        lambda name: f"..\\images\\.\\{name} ",
        lambda name: f"C:\\Users\\me\\{name}",
        lambda name: f"https://host/upload/{quote(name)}?token=a=b",
        lambda name: f"/data/local-files/?d={quote(f'mice/{name}')}",
        lambda name: f"\u00a0{name}\t",
        lambda name: unicodedata.normalize("NFD", name),
        lambda name: name.removesuffix(".png"),
    ],
)
def test_images_are_found_by_any_name(tmp_path: Path, named: Callable[[str], str]) -> None:
    made = document()
    for image in made["images"]:
        image["file_name"] = f"s\u00f1 50% {image['id']}.png"
    source = written(tmp_path / "mice", made)
    found = people_in(opened(source))
    for image in made["images"]:
        image["file_name"] = named(image["file_name"])
    names = [[image.id for image in images] for images in people_in(opened(annotated(source, made))).values()]
    assert names == [[image.id for image in images] for images in found.values()]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (("train/_annotations.coco.json", "train"), ("valid/_annotations.coco.json", "valid")),
        (("train.json", "data/train/images"), ("test.json", "data/test/images")),
    ],
)
def test_equal_names_in_several_folders_are_those_of_their_split(
    tmp_path: Path, train: tuple[str, str], test: tuple[str, str]
) -> None:
    parts = [(train, 4, 1), (test, 5, 101)]
    for (file, folder), count, first in parts:
        made = document(count, first)
        for number, (image, annotation) in enumerate(zip(made["images"], made["annotations"], strict=True)):
            image |= {"id": number, "file_name": f"{number}.png"}
            annotation |= {"id": number, "image_id": float(number), "category_id": "1"}
        made["categories"] = [{"id": 0, "name": "mice", "supercategory": "none"}, made["categories"][0] | {"id": 1}]
        written(tmp_path / "mice", made, file, folder)
    source = opened(tmp_path / "mice")
    assert (source.sizes, source.quarantined) == ({"train": 4, "test": 5}, ())
    pixels = [cv2.imread(str(tmp_path / "mice" / folder / "0.png")).mean() for (_, folder), _, _ in parts]
    for split, mean in zip(source.splits, pixels, strict=True):
        numbers = source.images.ordered(source.images.kept(split.name))
        [first] = [n for n, people in zip(numbers, people_of(source.images, numbers), strict=True) if people.id == 0]
        square = source.pixels(source.images.column("row")[[first]])
        assert abs(square[0, 8:56].mean() - mean) < 1


def test_images_in_two_places_are_refused_and_a_file_has_one_entry(tmp_path: Path) -> None:
    source = written(tmp_path / "mice", document())
    (source / "masks").mkdir()
    (source / "images").rename(source / "photos")
    shutil.copytree(source / "photos", source / "masks", dirs_exist_ok=True)
    with pytest.raises(SourceError, match="its images may be in masks or photos; move one"):
        opened(source)
    (source / "photos").rename(source / "images")
    made = document()
    made["images"][1]["file_name"] = f"/elsewhere/{made['images'][0]['file_name']}"
    shutil.rmtree(source / "masks")
    left = {record.record: record.reason for record in opened(annotated(source, made)).quarantined}
    assert left == {"/elsewhere/mouse 1.png (image 2)": "is not in the source"}


def test_crowds_and_boxes_without_keypoints_take_no_label_from_others(tmp_path: Path) -> None:
    made = document()
    outline = {"size": [HEIGHT, WIDTH], "counts": [100, 36, HEIGHT * WIDTH - 136]}
    added: list[dict[str, Any]] = [
        {"iscrowd": 1, "bbox": [5, 5, 20, 20], "segmentation": outline},
        {"bbox": [5, 5, 20, 20]},
        {"bbox": [5, 5, 20, 20], "keypoints": None},
        {"bbox": [5, 5, 20, 20], "keypoints": []},
        {"segmentation": [[5, 5, 25, 5, 25, 25]]},
        {"keypoints": [0] * 15},
        {},
    ]
    made["annotations"] += [{"id": 100 + n, "image_id": n, "category_id": 3, **one} for n, one in enumerate(added, 1)]
    source = opened(written(tmp_path, made))
    assert not source.quarantined
    images = {image.id: image for images in people_in(source).values() for image in images}
    for number in range(1, 8):
        people, [ignored] = chosen(images[number], 2, Counter())
        assert len(people) == 1
        assert ignored["bbox"] == ([5, 5, 20, 20] if number < 6 else [0, 0, 0, 0])
        truth = json.loads(images[number].annotations[1])
        assert (truth["keypoints"], truth["num_keypoints"]) == ([0] * 15, 0)
    assert source.counted["crowds"] == 1
    assert source.counted["instances without a labelled joint"] == 6
    assert "instances whose num_keypoints is wrong" not in source.counted


@pytest.mark.parametrize("name", ["mice", "animalpose", "ap10k", "onehand10k"])
def test_every_joint_is_in_the_records(real_data: Path, tmp_path: Path, name: str) -> None:
    folder = real_data / "own" / "keypoints" / name
    if name == "mice":
        made = document()
        for annotation in made["annotations"][::2]:  # nested
            annotation["keypoints"] = np.reshape(annotation["keypoints"], (5, 3)).tolist()
        folder = written(tmp_path / "raw", made)
    elif not folder.is_dir():
        pytest.skip(f"no {folder}")
    [file] = folder.glob("*.json")
    spec = spec_of(tmp_path / "root", folder, 64 if name == "mice" else 256)
    assert assert_joints_are_where_they_were(spec, json.loads(file.read_text()))


def test_another_animal_under_the_name_of_the_data_set_is_refused_and_more_joints_are_not(tmp_path: Path) -> None:
    def spec(folder: str, joints: tuple[str, ...]) -> ConvertSpec:
        made = document()
        made["categories"][0]["keypoints"] = list(joints)
        source, root = str(written(tmp_path / folder, made)), str(tmp_path / "root")
        return ConvertSpec.model_validate({"root": root, "dataset": "keypoints.pets", "source": source, "side": 64})

    convert(spec("mice", JOINTS), silent())
    convert(spec("more", (*JOINTS[:3], "left_paw", "right_paw")), silent())
    with pytest.raises(SourceError, match=r"keypoints.pets has the joints .*, but this source has the joints 'hoof'"):
        convert(spec("cows", ("hoof", "horn", "udder", "back", "hip")), silent())
