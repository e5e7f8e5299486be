"""Pictures in a page: however much there is to see in them, the page can be sent by mail."""

from __future__ import annotations

import base64

import cv2
import numpy as np
import pytest

from podline.documents.skeleton import COCO
from podline.kinds.pose.images import SHOWN
from podline.reporting.pictures import PHOTO, SMALL_PHOTO, data_uri, photo_uri

NOISE = np.random.default_rng(0).integers(0, 256, (600, 800, 3), np.uint8)


def _file(uri: str) -> bytes:
    assert uri.startswith("data:image/jpeg;base64,")
    return base64.b64decode(uri.partition(",")[2])


@pytest.mark.parametrize("most", [PHOTO, SMALL_PHOTO])
def test_what_is_all_detail_is_as_small_as_it_must_be_and_has_its_shape(most: int) -> None:
    file = _file(photo_uri(NOISE, most))
    assert 0.3 * most < len(file) <= most
    height, width, _ = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR).shape
    assert width / height == pytest.approx(800 / 600, rel=0.02)


def test_what_has_little_detail_keeps_its_pixels() -> None:
    plain = np.full((560, 420, 3), 90, np.uint8)
    assert cv2.imdecode(np.frombuffer(_file(photo_uri(plain)), np.uint8), cv2.IMREAD_COLOR).shape == plain.shape


def test_a_large_image_of_a_classifier_is_bounded_as_well() -> None:
    assert len(_file(data_uri(NOISE))) <= PHOTO


def test_the_largest_page_can_be_sent_by_mail() -> None:
    # Three kinds of images of two splits, each found and labelled; heatmaps and fields, each answered and wanted.
    photos, panels = 2 * 3 * SHOWN * 2 + 4, len(COCO.joints) + len(COCO.limbs)
    assert (photos * PHOTO + panels * SMALL_PHOTO) * 4 / 3 < 4_500_000
