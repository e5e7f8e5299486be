"""Each process of a joint training knows its place among the others; a lost one is a transient error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podline.base.errors import SettingsError, WorkerLostError
from podline.recipes import registry
from podline.settings import cluster as clusters
from podline.settings.cluster import Cluster, lost, parse
from podline.stages.specs import EvaluateSpec, TrainSpec, ValidateSpec
from podline.stages.supervision.child import worker_suffix


def config(cluster: object, kind: str = "worker", index: object = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TWO = {"worker": ["a:1", "b:1"]}
WITH_CHIEF = {"worker": ["a:1", "b:1"], "chief": ["c:1"]}


def test_the_first_worker_is_the_chief_unless_there_is_one():
    assert parse(config(TWO)).chief
    assert not parse(config(TWO, index=1)).chief
    assert parse(config(WITH_CHIEF, "chief")).chief
    second = parse(config(WITH_CHIEF, index=1))
    assert (second.place, second.addresses) == (2, ("c:1", "a:1", "b:1"))
    assert parse(clusters.EXAMPLE).place == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"TF_CONFIG is '{' \(Invalid JSON.*\), expected a value such as"),
        ('{"cluster": {"worker": ["a:1"]}}', "task = .* Field required"),
        (config({"worker": "a:1"}), "cluster.worker = 'a:1': Input should be a valid array"),
        (config(TWO, index=2), "the task worker 2, expected a task of a cluster of 2 × worker"),
        (config({**TWO, "ps": ["p:1"]}), "cluster.ps.* Input should be 'chief' or 'worker'"),
        (config({"chief": ["a:1", "b:1"]}, "chief"), "has 2 chiefs, expected at most one"),
        (config({}), "a cluster of no processes"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, words):
    with pytest.raises(SettingsError, match=words) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message", "is_lost"),
    [
        ("UnavailableError", "Graph execution error:\n Collective ops is aborted by: Connection reset by peer", True),
        ("FailedPreconditionError", "the incarnation of /job:worker/task:1 is another one", True),
        ("InvalidArgumentError", "collective shapes", False),
        ("ValueError", "collective", False),
    ],
)
def test_what_tensorflow_says_of_a_worker_that_is_gone_is_transient(kind, message, is_lost):
    error = lost(kind, message)
    assert (type(error) is WorkerLostError) == is_lost
    assert error is None or ("another worker has ended" in str(error) and "\n" not in str(error))


def test_workers_do_the_same_work_side_by_side_and_everybody_else_alone(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TF_CONFIG", config(TWO, index=1))
    training = TrainSpec(root=str(tmp_path), recipe=registry.get("sample"), fingerprint="f")
    validation = ValidateSpec(root=str(tmp_path), dataset="sample", fingerprint="f", manifest_sha256="m")
    judging = EvaluateSpec(
        root=str(tmp_path), run="r", dataset="sample", fingerprint="f", weights_sha256="w", strategy="workers"
    )
    by_workers = training.model_copy(update={"strategy": "workers"})
    assert [worker_suffix(spec) for spec in (training, validation, judging, by_workers)] == ["", "", *["-worker-1"] * 2]
    assert by_workers.digest() == training.digest()
    monkeypatch.setenv("TF_CONFIG", config(TWO, index=0))
    assert worker_suffix(by_workers) == ""
    assert Cluster(addresses=("a",), place=0).chief
