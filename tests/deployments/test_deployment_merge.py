"""The three-way merge of deployments, by tables."""

from __future__ import annotations

from typing import Any

import pytest

from podline.deployments.deployment_merge import ABSENT, Difference, defaults_of, merged, values_of, with_values

A, B, C = {"x": 1}, {"x": 2}, {"x": 3}


@pytest.mark.parametrize(
    ("last", "server", "file", "kept", "differs"),
    [
        (A, A, A, A, None),
        (A, A, B, B, None),  # the file changed
        (A, B, A, B, Difference("x", 2, 1, conflict=False)),  # a person changed it
        (A, B, B, B, None),  # both, to the same
        (A, B, C, B, Difference("x", 2, 3, conflict=True)),  # both
        ({}, A, A, A, None),
        ({}, A, B, A, Difference("x", 1, 2, conflict=True)),  # nobody knows who
        (A, {}, A, {}, Difference("x", ABSENT, 1, conflict=False)),  # a person took it away
        (A, A, {}, {}, None),  # the file took it away
        ({}, A, {}, A, Difference("x", 1, ABSENT, conflict=False)),  # a person added it
        ({}, {}, A, A, None),  # the file added it
    ],
)
def test_a_persons_value_stays_unless_it_is_overwritten(
    last: Any, server: Any, file: Any, kept: Any, differs: Difference | None
) -> None:
    differences = [differs] if differs else []
    assert merged(last, server, file, overwrite=False) == (kept, differences)
    assert merged(last, server, file, overwrite=True) == (file, differences)


def test_a_deployment_becomes_values_by_path_and_back() -> None:
    deployment = {
        "description": "every night",
        "tags": ["a", "b"],
        "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
        "work_pool": {"name": "cpu", "job_variables": {"env": {"A": "1"}}},
        "parameters": {"parameters": {"recipe": "sample", "empty": {}, "result": {"promote": True}}},
        "schedules": [
            {"cron": "15 1 * * *", "timezone": "Europe/Berlin", "active": False},
            {"interval": 3600.0, "active": True, "parameters": {"parameters": {"recipe": "mnist"}}},
        ],
    }
    values = values_of(deployment)
    assert values["parameters.parameters.result.promote"] is True
    assert values["schedules.15 1 * * * Europe/Berlin"]["active"] is False
    assert values["work_pool.job_variables.env.A"] == "1"
    assert with_values({"name": "nightly", "description": "before"}, values) == {"name": "nightly", **deployment}
    assert with_values({"name": "nightly"}, values_of({})) == {"name": "nightly", "schedules": []}


def test_what_a_form_is_left_at_is_known_by_path() -> None:
    of_training = {"properties": {"seed": {"default": -1}, "further": {"default": ""}}}
    of_flow = {"properties": {"recipe": {"default": "sample"}, "training": {"$ref": "#/definitions/Training"}, "x": {}}}
    schema = {
        "properties": {"parameters": {"$ref": "#/definitions/Flow", "title": "parameters"}},
        "definitions": {"Flow": of_flow, "Training": of_training},
    }
    assert defaults_of(schema) == {
        "parameters.parameters.recipe": "sample",
        "parameters.parameters.training.seed": -1,
        "parameters.parameters.training.further": "",
    }
