"""A kind of task is one class, and no other module asks which kind a run is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podline.errors import ArtifactError, SettingsError
from podline.kinds.table import kind_by_measure, kind_of, kinds, read_evaluation
from podline.measures import SHIPPED
from podline.recipes import registry
from podline.store.folder import FolderStore

PROJECT = Path(__file__).parents[2]
PRODUCT = ("podline", "tasks", "beam_jobs", "flows")
# How a kind was told apart once.
BRANCHES = re.compile(
    r"\.pose is (not )?None|\bin POSES\b|isinstance\([^)]*\bPose|(==|!=) \"(ap|top1|pose|classification)\""
    r"|\"(ap|top1)\" (==|!=|if )|if [\w.]*recipe\.pose\b"
)
# The kinds' own: a recipe's settings, and what reads a pose network's evaluation.
OWN = {"podline/recipes/settings.py", "podline/kinds/pose/judging.py", "podline/reporting/page.py"}


def test_nobody_else_asks_which_kind_a_run_is() -> None:
    found = [
        f"{file.relative_to(PROJECT)}:{number}: {line.strip()}"
        for top in PRODUCT
        for file in sorted((PROJECT / top).rglob("*.py"))
        if file.resolve() == file and str(file.relative_to(PROJECT)) not in OWN
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if BRANCHES.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "if recipe.pose is None:",
        "if self.name in POSES:",
        'return "ap" if isinstance(evaluation, PoseEvaluation) else "top1"',
        'if entry.outcome.measure == "ap":',
        "judgement = _judged_poses(case) if recipe.pose else _judged_classes(case)",
    ],
)
def test_the_search_finds_what_there_once_was(line: str) -> None:
    assert BRANCHES.search(line)


def test_each_recipe_has_its_kind_and_each_kind_a_measure_that_is_known() -> None:
    found = {name: kind_of(registry.get(name)).name for name in registry.names()}
    assert found == {name: "pose" if name in ("coco_pose", "keypoints") else "classification" for name in found}
    assert {kind.measure for kind in kinds()} < {measure.name for measure in SHIPPED}
    assert all(kind_by_measure(kind.measure) is kind for kind in kinds())


def test_a_recipe_for_classes_has_no_pose_settings() -> None:
    with pytest.raises(SettingsError, match="recipe sample is for classes, not for poses"):
        _ = registry.get("sample").poses


def test_an_evaluation_of_no_known_kind_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.publish_json("runs/r/evaluation.json", {"kind": "depth"})
    with pytest.raises(
        ArtifactError, match=r"evaluation\.json: got kind=depth, expected classification, pose; evaluate the run"
    ):
        read_evaluation(store, "runs/r")
    store.publish_json("runs/s/evaluation.json", {"kind": "pose"})
    with pytest.raises(ArtifactError, match=r"evaluation\.json is not an evaluation"):
        read_evaluation(store, "runs/s")
