"""DeepLabCut's tables, as DeepLabCut writes them by pandas, beside the same annotations in COCO's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from coco_files import people_in
from mice import HEIGHT, WIDTH, opened

from podline.base.errors import SourceError
from podline.data.check import check
from podline.recipes import registry
from podline.store.folder import FolderStore

pytestmark = pytest.mark.usefixtures("parsed_here")
PARTS = ("snout", "left ear", "right ear", "tail")
SKELETON = [["snout", "left ear"], ["snout", "right ear"], ["snout", "tail"]]
CONFIG = f"Task: open\nbodyparts: {json.dumps(PARTS)}\nskeleton: {json.dumps([*SKELETON, ['bodypart1', 'objectA']])}\n"
FOLDER = "labeled-data/video 1"


def frames(individuals: int) -> np.ndarray:
    """x and y of 12 frames, (frames, individuals, parts, 2); some joints, an individual and a frame have no label."""
    places = np.random.default_rng(0).integers(0, 220, (12, individuals, len(PARTS), 2)) / 4
    places[1, 0, 2] = places[2, 1:] = places[3] = np.nan
    return places


def table(places: np.ndarray, cells: int = 1, individuals: tuple[str, ...] = ()) -> pd.DataFrame:
    names = ["scorer", "individuals", "bodyparts", "coords"] if individuals else ["scorer", "bodyparts", "coords"]
    levels = [["me"], list(individuals), list(PARTS), ["x", "y"]] if individuals else [["me"], list(PARTS), ["x", "y"]]
    paths = [("labeled-data", "video 1", f"img{number:03}.png") for number in range(len(places))]
    index: Any = pd.MultiIndex.from_tuples(paths) if cells == 3 else ["/".join(path) for path in paths]
    return pd.DataFrame(places.reshape(len(places), -1), index, pd.MultiIndex.from_product(levels, names=names))


def project(root: Path, frame: pd.DataFrame, config: str = CONFIG, seed: int = 0) -> Path:
    folder = root / FOLDER
    folder.mkdir(parents=True)
    for number in range(len(frame)):
        pixels = np.random.default_rng([seed, number]).integers(0, 255, (HEIGHT, WIDTH, 3)).astype(np.uint8)
        cv2.imwrite(str(folder / f"img{number:03}.png"), pixels)
    frame.to_csv(folder / "CollectedData_me.csv")
    (root / "config.yaml").write_text(config)
    return root


@pytest.mark.parametrize(("individuals", "cells"), [((), 1), (("one", "two"), 3)])
@pytest.mark.parametrize("given", [".", "labeled-data", FOLDER, f"{FOLDER}/CollectedData_me.csv"])
def test_a_table_gives_every_label_its_place(
    tmp_path: Path, individuals: tuple[str, ...], cells: int, given: str
) -> None:
    places = frames(max(1, len(individuals)))
    source = opened(project(tmp_path / "project", table(places, cells, individuals)) / given)
    prefix = {".": f"{FOLDER}/", "labeled-data": "video 1/"}.get(given, "")
    found = {image.name: image for images in people_in(source).values() for image in images}
    assert len(found) == 11, "a frame without a label is not learned"
    for number, people in enumerate(places):
        labels = [np.column_stack([joints, np.where(np.isnan(joints[:, 0]), 0, 2)]) for joints in people]
        expected = [np.nan_to_num(label).ravel().tolist() for label in labels if label[:, 2].any()]
        image = found.pop(f"{prefix}img{number:03}.png") if expected else None
        if image is not None:
            assert [json.loads(one)["keypoints"] for one in image.annotations] == expected
            assert (image.width, image.height) == (WIDTH, HEIGHT)
    assert not found
    assert source.skeleton.joints == PARTS
    assert source.skeleton.limbs == tuple(map(tuple, SKELETON))
    assert not source.quarantined


def test_what_is_there_once_is_a_category_of_its_own(tmp_path: Path) -> None:
    frame = table(frames(2), individuals=("one", "single"))
    frame = frame.drop(columns=[("me", "single", "tail", "x"), ("me", "single", "tail", "y")])
    root = project(tmp_path / "project", frame, "")
    with pytest.raises(SourceError, match=r"individual \(4 joints\), single \(3 joints\)"):
        opened(root)
    (root / "config.yaml").unlink()
    assert opened(root, category="single").skeleton.joints == PARTS[:3]


def test_tables_of_several_videos_are_one_set(tmp_path: Path) -> None:
    root = project(tmp_path / "project", table(frames(1)))
    (root / FOLDER).rename(root / "labeled-data" / "video 2")
    project(root, table(frames(1)), seed=1)
    source = opened(root)
    assert source.read == 22
    (root / FOLDER / "CollectedData_me.csv").write_text(
        (root / FOLDER / "CollectedData_me.csv").read_text().replace("tail", "paw")
    )
    with pytest.raises(SourceError, match=r"video 2.* has the body parts .*tail vs .*paw"):
        opened(root)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: f"{text}{',' * 8}\n ,{',' * 7}\n",
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace("\n", ",,\n"),  # columns that were emptied
        lambda text: text.replace(".png,", ".png ,").replace("\n", "\r\n"),
    ],
)
def test_empty_cells_of_an_edited_table_change_nothing(tmp_path: Path, change: Any) -> None:
    root = project(tmp_path / "project", table(frames(1)))
    found = people_in(opened(root))
    file = root / FOLDER / "CollectedData_me.csv"
    file.write_bytes(change(file.read_text()).encode())
    assert people_in(opened(root)) == found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("scorer,", "class,"), "not a table of DeepLabCut: got rows that begin with class"),
        (lambda text: text.replace("y,x,y\n", "y,x,likelihood\n", 1), "coords are .* give a table of labels"),
        (lambda text: f"{text}img999.png,1,2,3,,5,6,7,8\n", "img999.png has only one of x and y of left ear"),
        (lambda text: f"{text}img999.png,1,2\n", "rows of 3 and of 9 cells, expected rows of one length"),
        (lambda text: f"{text}img001.png,1,2,3,4,5,6,7,8\n", "img001.png occurs in two rows"),
        (lambda text: "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_a_table_that_cannot_be_is_refused_with_file_and_line(tmp_path: Path, change: Any, problem: str) -> None:
    root = project(tmp_path / "project", table(frames(1)))
    file = root / FOLDER / "CollectedData_me.csv"
    file.write_text(change(file.read_text()))
    with pytest.raises(SourceError, match=problem) as error:
        opened(root)
    assert "CollectedData_me.csv" in str(error.value)
    recipe, store = registry.get("keypoints"), FolderStore(tmp_path / "root")
    for source in (root, file):  # data check tells the same
        with pytest.raises(SourceError, match=problem):
            check(str(source), registry.get("images"), recipe, {}, store, 0.1)


def test_data_check_opens_a_table_whatever_its_name(tmp_path: Path) -> None:
    root = project(tmp_path / "project", table(frames(1)))
    file = (root / FOLDER / "CollectedData_me.csv").rename(root / FOLDER / "mine.CSV")
    found = check(str(file), registry.get("images"), registry.get("keypoints"), {}, FolderStore(tmp_path / "root"), 0.1)
    assert found.source.skeleton
