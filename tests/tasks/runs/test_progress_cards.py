"""The cards of progress of a flow run: one for each stage, in their order, also after a retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from podline.tasks.runs.progress_cards import card_of, deal_cards, show
from podline.tasks.runs.run_log import stage_listener

STAGES = ("convert", "validate", "train", "evaluate", "promote", "report")
pytestmark = pytest.mark.usefixtures("prefect_server")


@task
def stage(name: str) -> None:
    tell = stage_listener(name)
    if name == "train":
        tell({"event": "progress", "stage": name, "done": 3, "total": 4, "unit": "steps", "metrics": {}})
    tell({"event": "result", "stage": name, "result": {}})


@flow(retries=1)
def night(recipe: str) -> str:
    deal_cards(recipe, STAGES)
    if flow_run.run_count == 1:
        stage("convert")
        raise ValueError("of the first start")
    show("convert", 100.0, "convert: reused after verification")
    for name in ("validate", "train"):
        stage(name)
    return str(flow_run.id)


def listed(run: str) -> list[dict[str, Any]]:
    """A run's artifacts as Prefect's UI asks for them: in the order that the server has them by itself."""
    filter_ = {"flow_run_id": {"any_": [run]}, "type": {"not_any_": ["result"]}}
    with get_client(sync_client=True) as client:
        return client._client.post("/artifacts/filter", json={"artifacts": filter_}).json()


def test_a_card_for_each_stage_in_their_order_also_after_a_retry() -> None:
    # Ids are drawn at random: by chance alone they are in order in one of 720 runs.
    for recipe in ("coco_pose", "mnist"):
        cards = listed(night(recipe))
        assert [(card["description"], card["data"]) for card in cards] == [
            ("convert: reused after verification", 100.0),
            ("validate: done", 100.0),
            ("train: done", 100.0),
            ("evaluate: not begun", 0.0),
            ("promote: not begun", 0.0),
            ("report: not begun", 0.0),
        ]
        assert {card["key"] for card in cards} == {f"{recipe.replace('_', '-')}-progress"}
        assert {card["task_run_id"] for card in cards} == {None}


def test_a_flow_without_cards_has_none_to_write_on() -> None:
    @flow
    def plain() -> UUID | None:
        stage("train")
        return card_of("train")

    assert plain() is None
