"""People go from the planner to the workers with every number as it was read."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
from coco_files import HEIGHT, WIDTH, person
from hypothesis import given
from hypothesis import strategies as st

from podline.data.coco_letterbox import LetterBox, snapped
from podline.data.keypoints import from_annotated
from podline.data.sources.coco import CocoImage
from podline.data.sources.coco_files import ImagePlace
from podline.data.sources.coco_image import PixelPlace
from podline.data.sources.coco_people import PersonEntry, packed, people_of, unpacked
from podline.data.sources.coco_records import annotations_of
from podline.documents.skeleton import COCO

NUMBERS = st.one_of(st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9))
PEOPLE = st.builds(
    PersonEntry,
    id=st.integers(-(2**63), 2**63 - 1),
    keypoints=st.tuples(*[NUMBERS] * 51),
    bbox=st.tuples(*[NUMBERS] * 4),
    area=NUMBERS,
)


@given(st.lists(PEOPLE, max_size=4))
def test_packed_people_are_unpacked_to_the_last_bit(people: list[PersonEntry]) -> None:
    rows = unpacked(packed(people), 17)
    assert rows["id"].tolist() == [one.id for one in people]
    assert rows["keypoints"].reshape(-1, 51).tolist() == [list(one.keypoints) for one in people]
    assert rows["bbox"].tolist() == [list(one.bbox) for one in people]
    assert rows["area"].tolist() == [one.area for one in people]


def image(number: int, width: int, height: int, people: int) -> CocoImage:
    """An image with some people, and one whom nobody labelled."""
    entries = [person(10 * number + n, number, area=100.5 * (n + 1)) for n in range(people)]
    nobody = person(10 * number + 9, number, num_keypoints=0, keypoints=[0] * 51)
    labelled, ignored = people_of([*entries, nobody], width, height, 3, Counter())
    place, pixels = ImagePlace(f"/images/{number}.jpg", 5, 7), PixelPlace(0, number)
    return CocoImage(number, f"{number}.jpg", width, height, place, pixels, packed(labelled), json.dumps(ignored))


def test_records_made_together_are_those_made_alone() -> None:
    images = [image(1, WIDTH, HEIGHT, 2), image(2, HEIGHT, WIDTH, 0), image(3, 91, 70, 3), image(4, WIDTH, HEIGHT, 1)]
    together = annotations_of(images, 64, 3, COCO)
    alone = [annotations_of([one], 64, 3, COCO) for one in images]
    for name, values in together.items():
        np.testing.assert_array_equal(values, np.concatenate([columns[name] for columns in alone]), err_msg=name)
    assert together["people"].tolist() == [2, 0, 3, 1]
    assert together["label"].tolist() == [2, 1, 2, 2]
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
