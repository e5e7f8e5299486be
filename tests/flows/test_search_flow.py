"""The flow of a search on a real server, its trainings left out: tasks, ledger, artifact; and that it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, TaskRunFilter, TaskRunFilterName
from small_dataset import publish_dataset
from small_flow_stages import TRIAL_STAGE, ran

from podline.errors import SettingsError
from podline.flows.search import search_values
from podline.ledger import ledger
from podline.stages.table import STAGES
from podline.store.opening import open_store
from podline.tasks.parameters import SearchParameters

OVER = ("learning_rate=log:0.0001..1",)


@pytest.mark.usefixtures("prefect_server", "stages_here")
def test_each_trial_is_a_task_and_an_entry_and_a_pruned_one_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, TRIAL_STAGE.name, TRIAL_STAGE)
    publish_dataset(tmp_path)
    given = {"recipe": "sample", "root": str(tmp_path), "over": OVER, "assignments": ("batch_size=8",)}
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
        named = TaskRunFilter(name=TaskRunFilterName(like_="train, sample-"))
        tasks = [task.state_name for task in client.read_task_runs(task_run_filter=named)]
        ours = ArtifactFilter(key=ArtifactFilterKey(any_=["sample-search"]))
        texts = [str(artifact.data) for artifact in client.read_artifacts(artifact_filter=ours)]
    assert (tasks.count("Completed"), tasks.count("Pruned")) == (9 - pruned, pruned)
    assert len(texts) == 2
    assert any("9 trials" in text for text in texts)


def test_what_cannot_be_searched_is_refused_where_it_is_filled_in() -> None:
    with pytest.raises(SettingsError, match="got no value to search over"):
        SearchParameters(recipe="sample")
    with pytest.raises(SettingsError, match=r"a recipe has no 'model\.widht'"):
        SearchParameters(recipe="sample", over=("model.widht=1..2",))
