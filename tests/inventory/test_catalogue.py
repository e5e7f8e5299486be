"""Which data set a recipe takes from a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_dataset import FINGERPRINT
from small_poses import RECIPE, publish_poses

from podline.errors import StoreError
from podline.inventory.catalogue import dataset_for
from podline.progress import silent
from podline.recipes.registry import override
from podline.store.opening import open_store


def test_a_recipe_of_poses_takes_data_of_its_own_size(tmp_path: Path) -> None:
    publish_poses(tmp_path)
    store, larger = open_store(tmp_path), override(RECIPE, {"task.side": 96})
    assert dataset_for(store, RECIPE, None, silent()).fingerprint == FINGERPRINT
    with pytest.raises(StoreError, match=r"no data set coco with images of 96 pixels; .*convert coco .* --side 96"):
        dataset_for(store, larger, None, silent())
    # One that is named is taken; that it does not fit is told where it is opened.
    assert dataset_for(store, larger, FINGERPRINT[:4], silent()).fingerprint == FINGERPRINT
