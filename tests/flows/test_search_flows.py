"""Flows that search leave tasks, ledger entries and artifacts, and go on where they were."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, TaskRunFilter
from prefect.client.schemas.objects import Artifact
from small_dataset import publish_dataset
from small_flow_stages import SEARCH_STAGE, TRIAL_STAGE, ran

from podline.base.errors import SettingsError
from podline.flows.learning_rate_finder import learning_rate_finder
from podline.flows.search import search_values
from podline.ledger import ledger
from podline.stages.table import STAGES
from podline.store.opening import open_store
from podline.tasks.forms import FinderParameters, SearchParameters


@pytest.fixture
def root(tmp_path: Path, in_children: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(STAGES, SEARCH_STAGE.name, SEARCH_STAGE)
    publish_dataset(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("prefect_server")
def test_a_search_answers_with_a_rate_and_leaves_its_chart_and_is_found_the_next_time(root: Path) -> None:
    parameters = FinderParameters(recipe="sample", root=str(root), steps=30, assignments=("batch_size=8",))
    first = learning_rate_finder(parameters)
    assert (first["learning_rate"], first["reused"]) == (0.1, False)
    [chart], [reasons] = map(artifacts, ("sample-learning-rate", "sample-learning-rate-reasons"))
    assert chart.type == "image"
    assert chart.data == "data:image/png;base64," + base64.b64encode(b"a picture").decode()
    assert "because" in str(reasons.data)

    assert learning_rate_finder(parameters)["reused"]
    assert ran(str(root)) == ["lr-find"]


def artifacts(key: str) -> list[Artifact]:
    with get_client(sync_client=True) as client:
        return client.read_artifacts(artifact_filter=ArtifactFilter.model_validate({"key": {"any_": [key]}}))


@pytest.mark.parametrize(
    ("form", "given", "message"),
    [
        (FinderParameters, {"low": 1.0, "high": 0.1}, "the lowest rate must be below the highest"),
        (FinderParameters, {"assignments": ("batchsize=3",)}, "a recipe has no 'batchsize'"),
        (SearchParameters, {}, "got no value to search over"),
        (SearchParameters, {"over": ("model.widht=1..2",)}, r"a recipe has no 'model\.widht'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_filled_in(form: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        form(recipe="sample", **given)


@pytest.mark.usefixtures("prefect_server", "stages_here")
def test_each_trial_is_a_task_and_an_entry_and_a_pruned_one_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, TRIAL_STAGE.name, TRIAL_STAGE)
    publish_dataset(tmp_path)
    over = ("learning_rate=log:0.0001..1",)
    given = {"recipe": "sample", "root": str(tmp_path), "over": over, "assignments": ("batch_size=8",)}
    first = search_values(SearchParameters(**given, trials=3))
    assert first["trials"] == {"complete": 3}
    found = search_values(SearchParameters(**given, trials=9))
    assert sum(found["trials"].values()) == 9
    pruned = found["trials"]["pruned"]
    assert pruned
    assert len(ran(str(tmp_path))) == 9 - pruned
    states = [named.state for named in ledger.names(open_store(str(tmp_path)), recipe="sample")]
    assert (states.count("finished"), states.count("cancelled")) == (9 - pruned, pruned)
    with get_client(sync_client=True) as client:
        named = TaskRunFilter.model_validate({"name": {"like_": "train, sample-"}})
        tasks = [task.state_name for task in client.read_task_runs(task_run_filter=named)]
    assert (tasks.count("Completed"), tasks.count("Pruned")) == (9 - pruned, pruned)
    assert any("9 trials" in str(artifact.data) for artifact in artifacts("sample-search"))
