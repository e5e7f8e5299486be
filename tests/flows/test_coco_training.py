"""The flow for people on a real server, its stages being small ones: which data it takes, and what it finds again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from coco_files import CocoFiles
from prefect.utilities.importtools import load_script_as_module
from small_flow_stages import FLOW_STAGES, ran

from podline.data.sources import coco_sample
from podline.flows.coco_training import coco_training
from podline.stages.table import STAGES
from podline.tasks.parameters import CocoParameters, MachineGroup

PROJECT = Path(__file__).parent.parent.parent
ALL = ["convert", "validate", "train", "evaluate", "report"]

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store; the stages are small ones, and so is the drawn sample."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "tests" / "support"))
    for name, stage in FLOW_STAGES.items():
        monkeypatch.setitem(STAGES, name, stage)
    monkeypatch.setattr(coco_sample, "write_coco_sample", partial(coco_sample.write_coco_sample, train=5, test=1))
    return str(tmp_path / "root")


def test_without_a_source_people_are_drawn_once(root: str) -> None:
    parameters = CocoParameters(machine=MachineGroup(root=root, allow_left_out=1))
    first, second = coco_training(parameters), coco_training(parameters)
    assert ran(root) == ALL
    assert first["run"] == second["run"]
    assert [name for name, stage in second["stages"].items() if stage["reused"]] == ALL
    assert len(list(Path(root, "sources/coco_sample/train2017").iterdir())) == 6
    assert len(list(Path(root, "datasets/coco_sample").iterdir())) == 1


def test_a_source_is_coco_s_own(root: str, tmp_path: Path) -> None:
    CocoFiles("train").write(tmp_path / "coco")
    CocoFiles("val", 2, 101).write(tmp_path / "coco")
    answer = coco_training(CocoParameters(source=str(tmp_path / "coco"), steps=1, machine=MachineGroup(root=root)))
    assert answer["run"].startswith("coco_pose-")
    assert not Path(root, "sources").exists()
    assert len(list(Path(root, "datasets/coco").iterdir())) == 1


def test_the_flow_loads_by_its_path_as_a_deployment_does() -> None:
    module = load_script_as_module(str(PROJECT / "flows" / "coco_training.py"))
    assert module.coco_training.name == "coco-training"
    fields = module.coco_training.parameters.model_dump()["definitions"]["CocoParameters"]["properties"]
    assert len({field["position"] for field in fields.values()}) == len(fields)
    # A group says what it is in its own schema.
    assert all("$ref" in str(field) or field["description"] for field in fields.values())
    assert not any("anyOf" in field for field in fields.values())
