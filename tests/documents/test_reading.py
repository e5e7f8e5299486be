"""Documents that are not what their reader expects: the error names the file, the field and the remedy in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_dataset import publish_dataset

from podline.base.errors import ArtifactError
from podline.documents.completion import Completion, completion_name, read_result
from podline.documents.manifest import read_manifest
from podline.stages.specs import EvaluateResult
from podline.store.opening import open_store


@pytest.mark.parametrize("content", ["[]", "null", '"x"', "7"])
def test_a_document_is_an_object(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"a\.json is not a JSON object; put it back"):
        open_store(tmp_path).read_json("a.json")


def test_a_document_of_another_version_is_told_in_one_line(tmp_path: Path) -> None:
    manifest, store = publish_dataset(tmp_path), open_store(tmp_path)
    name = f"{manifest.folder}/manifest.json"
    store.publish_json(name, {**store.read_json(name), "surplus": 1}, replace=True)
    with pytest.raises(ArtifactError, match=r"is not a manifest \(surplus: [^\n]*\); convert the data again$"):
        read_manifest(store, manifest.folder)


def test_the_result_of_another_stage_is_told_in_one_line(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    record = Completion(stage="evaluate", spec_digest="", result={"seconds": 1}, artifacts=())
    store.publish_json(completion_name("runs/a", "evaluate"), json.loads(record.model_dump_json()))
    with pytest.raises(ArtifactError, match=r"evaluate\.json is not a .* of evaluate \([^\n]*\); run evaluate again$"):
        read_result(store, "runs/a", "evaluate", EvaluateResult)
