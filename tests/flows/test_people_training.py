"""The flow for people on a real server, its stages being small ones: which data it takes, and what it finds again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from coco_files import CocoFiles
from small_flow_stages import ran

from podline.data.sources import coco_sample
from podline.flows.training import training
from podline.tasks.parameters import DataGroup, MachineGroup, TrainingForm, TrainingGroup

ALL = ["convert", "validate", "train", "evaluate", "report"]

pytestmark = pytest.mark.usefixtures("prefect_server", "stages_here")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_stages: None) -> str:
    """An empty store; the stages are small ones, and so is the drawn sample."""
    monkeypatch.setattr(coco_sample, "write_coco_sample", partial(coco_sample.write_coco_sample, train=5, test=1))
    return str(tmp_path / "root")


def test_without_a_source_people_are_drawn_once(root: str) -> None:
    parameters = TrainingForm(recipe="coco_pose", data=DataGroup(allow_left_out=1), machine=MachineGroup(root=root))
    first, second = training(parameters), training(parameters)
    assert ran(root) == ALL
    assert first["run"] == second["run"]
    assert [name for name, stage in second["stages"].items() if stage["reused"]] == ALL
    assert len(list(Path(root, "sources/coco_sample/train2017").iterdir())) == 6
    assert len(list(Path(root, "datasets/coco_sample").iterdir())) == 1


def test_a_source_is_coco_s_own(root: str, tmp_path: Path) -> None:
    CocoFiles("train").write(tmp_path / "coco")
    CocoFiles("val", 2, 101).write(tmp_path / "coco")
    group, machine = TrainingGroup(steps=1), MachineGroup(root=root)
    answer = training(TrainingForm(recipe="coco_pose", source=f"{tmp_path}/coco", training=group, machine=machine))
    assert answer["run"].startswith("coco_pose-")
    assert not Path(root, "sources").exists()
    assert len(list(Path(root, "datasets/coco").iterdir())) == 1
