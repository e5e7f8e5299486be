"""Records are made of the people of many images at once."""

from __future__ import annotations

import json

import numpy as np
from coco_files import HEIGHT, WIDTH, person

from podline.data.coco_letterbox import LetterBox, snapped
from podline.data.keypoints import from_annotated
from podline.data.sources.coco import CocoImage
from podline.data.sources.coco_files import ImagePlace
from podline.data.sources.coco_image import PixelPlace
from podline.data.sources.coco_records import annotations_of
from podline.documents.skeleton import COCO


def image(number: int, width: int, height: int, people: int) -> CocoImage:
    """An image with some people, and one whom nobody labelled."""
    entries = [person(10 * number + n, number, area=100.5 * (n + 1)) for n in range(people)]
    nobody = person(10 * number + 9, number, num_keypoints=0, keypoints=[0] * 51)
    place, pixels = ImagePlace(f"/images/{number}.jpg", 5, 7), PixelPlace(0, number)
    return CocoImage(number, f"{number}.jpg", width, height, place, pixels, tuple(map(json.dumps, [*entries, nobody])))


def test_records_made_together_are_those_made_alone() -> None:
    images = [image(1, WIDTH, HEIGHT, 2), image(2, HEIGHT, WIDTH, 0), image(3, 91, 70, 3), image(4, WIDTH, HEIGHT, 1)]
    together = annotations_of(images, 64, 3, COCO)
    alone = [annotations_of([one], 64, 3, COCO) for one in images]
    for name, values in together.items():
        np.testing.assert_array_equal(values, np.concatenate([columns[name] for columns in alone]), err_msg=name)
    assert together["people"].tolist() == [2, 0, 3, 1]
    # By the geometry of one image and one person at a time, the largest first.
    box = LetterBox(91, 70, 64)
    pose = from_annotated(np.array(person(1, 1)["keypoints"]).reshape(17, 3), COCO)
    moved = np.where(pose[:, 2:] > 0, snapped(box.joints_to_network(pose[:, :2])), 0)
    np.testing.assert_array_equal(together["keypoints"][2, 0, :, :2], moved)
    np.testing.assert_array_equal(together["boxes"][2, 0], snapped(box.boxes_to_network(person(1, 1)["bbox"])))
    assert together["areas"][2].tolist() == np.float32(box.areas_to_network([301.5, 201, 100.5])).tolist()
    assert together["annotation_ids"][2].tolist() == [32, 31, 30]


def test_an_image_is_read_from_its_line_as_it_was_written() -> None:
    written = image(3, 91, 70, 2)
    assert CocoImage.from_json(written.to_json()) == written
    assert "\n" not in written.to_json()
