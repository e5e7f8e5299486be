"""``podline data``: what it answers about the data sets of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from small_coco import publish_people
from small_dataset import publish_dataset

from podline.cli import cli
from podline.errors import StoreError


def data(*arguments: Any, catch: bool = True) -> Result:
    return CliRunner().invoke(cli, ["data", *map(str, arguments)], catch_exceptions=catch)


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_a_recipe_is_another_name_of_its_data_set(tmp_path: Path, options: list[str]) -> None:
    manifest = publish_people(tmp_path, dataset="coco")
    found = data("show", "coco_pose", *options, "--root", tmp_path)
    assert found.exit_code == 0, found.output
    assert found.stdout == data("show", "coco", *options, "--root", tmp_path).stdout
    if not options:
        assert found.stdout.startswith(f"coco {manifest.fingerprint}")


def test_what_is_there_instead_is_named(tmp_path: Path) -> None:
    publish_dataset(tmp_path)
    with pytest.raises(StoreError, match="has no data set coco vs sample that are there; make one with"):
        data("show", "coco_pose", "--root", tmp_path, catch=False)
