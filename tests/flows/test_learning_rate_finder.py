"""The finder's flow on a real server, its training left out: its artifacts, and that a search is not repeated."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from pydantic import ValidationError
from small_dataset import publish_dataset
from small_flow_stages import SEARCH_STAGE, ran

from podline.errors import SettingsError
from podline.flows.learning_rate_finder import learning_rate_finder
from podline.stages.table import STAGES
from podline.tasks.parameters import FinderParameters


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
    with get_client(sync_client=True) as client:
        found = {
            key: client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
            for key in ("sample-learning-rate", "sample-learning-rate-reasons")
        }
    [chart], [reasons] = found["sample-learning-rate"], found["sample-learning-rate-reasons"]
    assert chart.type == "image"
    assert chart.data == "data:image/png;base64," + base64.b64encode(b"a picture").decode()
    assert "because" in str(reasons.data)

    assert learning_rate_finder(parameters)["reused"]
    assert ran(str(root)) == ["lr-find"]


def test_what_cannot_be_is_refused_where_it_is_filled_in() -> None:
    with pytest.raises(SettingsError, match="the lowest rate must be below the highest"):
        FinderParameters(recipe="sample", low=1.0, high=0.1)
    with pytest.raises(SettingsError, match="a recipe has no 'batchsize'"):
        FinderParameters(recipe="sample", assignments=("batchsize=3",))
    with pytest.raises(ValidationError):
        FinderParameters(recipe="sample", steps=3)
