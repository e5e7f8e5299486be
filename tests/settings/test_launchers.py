"""Slurm, Kubernetes and TF_CONFIG tell each process the same addresses, and a contradiction is refused."""

from __future__ import annotations

import json

import pytest

from podline.base.errors import SettingsError
from podline.settings import machine as settings
from podline.settings.launchers import Wanted, discover, sharing, slurm_nodes


def tf_config(count: int, place: int) -> dict[str, str]:
    workers = [f"host{index}:1" for index in range(count)]
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": place}})}


def slurm(nodes: str, tasks: int, place: int, node: int | None = None) -> dict[str, str]:
    """What Slurm 22.05 sets in a step of srun."""
    return {
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_PROCID": str(place),
        "SLURM_NODEID": str(place if node is None else node),
    }


def of_pod(place: int) -> dict[str, str]:
    return {"JOB_COMPLETION_INDEX": str(place)}


@pytest.mark.parametrize(
    ("environment", "hosts", "name", "addresses", "place"),
    [
        (tf_config(2, 1), "", "", ("host0:1", "host1:1"), 1),
        (slurm("n[1-2]", 2, 1), "", "", ("n1:2222", "n2:2223"), 1),
        (slurm("n[1-2]", 2, 0) | tf_config(2, 0), "1..4", "", ("host0:1", "host1:1"), 0),
        (of_pod(1), "2", "train-1.train.team.svc.cluster.local", ("train-0", "train-1"), 1),
        (of_pod(0), "2", "set-hosts-0-0.set", ("set-hosts-0-0", "set-hosts-0-1"), 0),
    ],
)
def test_each_launcher_tells_every_process_the_same_addresses_and_its_own_place(
    monkeypatch, environment, hosts, name, addresses, place
):
    monkeypatch.setattr("socket.getfqdn", lambda: name)
    cluster = discover(environment, Wanted(2222, hosts))
    _, dot, domain = name.partition(".")
    if dot:
        addresses = tuple(f"{host}.{domain}:{2222 + index}" for index, host in enumerate(addresses))
    assert (cluster.addresses, cluster.place) == (addresses, place)


@pytest.mark.parametrize(
    ("environment", "hosts", "name", "words"),
    [
        ({}, "", "", r"no launcher has set its variables; start by srun \(Slurm\)"),
        (
            tf_config(4, 0) | slurm("n[1-2]", 2, 0),
            "",
            "",
            "got process 0 of 4 from TF_CONFIG and process 0 of 2 from Slurm, expected the same; start every process",
        ),
        (slurm("n[1-2]", 2, 0), "3..4", "", "got 2 processes from Slurm, expected hosts=3..4"),
        (slurm("n[1-2]", 4, 0), "", "", "got 4 tasks on 2 nodes.* use srun --ntasks-per-node=1"),
        ({"SLURM_STEP_NODELIST": "n1"}, "", "", "SLURM_STEP_NUM_TASKS: got '', expected a number"),
        (of_pod(0), "", "a-0.b", "hosts=nothing with JOB_COMPLETION_INDEX=0, .* set PODLINE_HOSTS"),
        (of_pod(0), "2", "a-0", "got host name 'a-0', expected JOB-0.SERVICE"),
    ],
)
def test_what_contradicts_itself_or_another_launcher_is_refused_in_one_line(
    monkeypatch, environment, hosts, name, words
):
    monkeypatch.setattr("socket.getfqdn", lambda: name)
    with pytest.raises(SettingsError, match=words) as caught:
        discover(environment, Wanted(2222, hosts))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("available", "hosts", "batch_sizes", "replicas", "count"),
    [
        (3, "2..4", [8], 1, 2),
        (5, "", [12], 1, 4),
        (5, "", [12, 8, 6], 1, 2),
        (3, "", [7], 1, 1),
    ],
)
def test_as_many_hosts_as_share_the_batches_equally_train(available, hosts, batch_sizes, replicas, count):
    assert sharing(available, Wanted(2222, hosts), batch_sizes, replicas) == count
    with pytest.raises(SettingsError, match=r"batch_size=7 cannot be .* hosts=2\.\.4.*; change batch_size or hosts"):
        sharing(3, Wanted(2222, "2..4"), [7])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,5],gpu", ["n1", "n2", "n3", "n5", "gpu"]),
        ("gpu-a[01-02]-x,b[7],c[099-101]", ["gpu-a01-x", "gpu-a02-x", "b7", "c099", "c100", "c101"]),
    ],
)
def test_a_list_of_nodes_is_expanded_as_scontrol_does(text, names):
    assert slurm_nodes(text) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n[a-b]", ",n", "r[1-2]n[1-2]"])
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(SettingsError, match="SLURM_STEP_NODELIST: got"):
        slurm_nodes(text)


def test_port_and_number_of_hosts_are_settings(monkeypatch):
    for name, text in (slurm("n[1-2]", 2, 0) | {"PODLINE_CLUSTER_PORT": "4000", "PODLINE_HOSTS": "2"}).items():
        monkeypatch.setenv(name, text)
    assert settings.cluster().addresses == ("n1:4000", "n2:4001")
    monkeypatch.setenv("PODLINE_HOSTS", "2..")
    with pytest.raises(SettingsError, match=r"environment variable PODLINE_HOSTS: hosts = '2\.\.'"):
        settings.cluster()
