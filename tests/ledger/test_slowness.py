"""A stage that is slower than usual is found, with its cause, and chance alone raises no alarm."""

from __future__ import annotations

import math
import random

import pytest
from ledger_entries import night

from podline.documents.ledger_entry import Load, StageTime
from podline.ledger import ledger
from podline.ledger.paces import earlier, paces_of, slow_training
from podline.ledger.slowness import MOST, MachinePace, growth, losses, slowness
from podline.store.opening import open_store

USUAL = MachinePace(0.001, 0.03, "gpu", "auto", 8, "a")


def nights(count: int, noise: float = 0.0, seed: int = 0, pace: MachinePace = USUAL) -> list[MachinePace]:
    """Paces whose logarithm has a normal spread."""
    draw = random.Random(seed)
    return [pace._replace(seconds=pace.seconds * math.exp(draw.gauss(0, noise))) for _ in range(count)]


@pytest.mark.parametrize(("noise", "most"), [(0.05, 0), (0.1, 0.001), (0.2, 0.01)])
def test_undisturbed_runs_raise_no_alarm(noise, most):
    """1,000 series of eleven runs, of which each from the fourth on is judged."""
    judged, alarms = 0, 0
    for seed in range(1000):
        paces = nights(11, noise, seed)
        for place in range(3, len(paces)):
            judged += 1
            alarms += slowness(paces[place], paces[:place]) != ""
    assert alarms <= most * judged


@pytest.mark.parametrize(("factor", "noise", "least"), [(1.6, 0.05, 0.8), (2.5, 0.1, 0.9), (17, 0.2, 0.99)])
def test_a_run_that_is_slower_is_found_among_ten(factor, noise, least):
    found = 0
    for seed in range(500):
        *before, now = nights(11, noise, seed)
        found += slowness(now._replace(seconds=now.seconds * factor), before) != ""
    assert found >= least * 500


ALONE = Load(cores=8, own=6.0, others=0.2, stolen=0.0, throttled=0.02)
LIKE = USUAL._replace(traces=3, load=ALONE)


def crowded(**changes: float) -> dict[str, Load]:
    return {"load": ALONE.model_copy(update=changes)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": "cpu"}, "cpu instead of gpu"),
        ({"cores": 1}, "1 core instead of 8"),
        ({"strategy": "cpu:8"}, "strategy cpu:8 instead of auto"),
        (
            {"waiting": 0.61, "cores": 2, "machine": "b"},
            "waits for input 61 % of the time, 3 % before; 2 cores instead of 8; machine b instead of a",
        ),
        ({"traces": 9}, "traced 9 graphs of the training step, 3 before"),
        (crowded(own=3.0, others=4.9), "other processes use 4.9 of 8 cores, 0.2 before"),
        (crowded(own=4.0, stolen=3.5), "the hypervisor takes 3.5 of 8 cores, 0.0 before"),
        (crowded(own=2.0, throttled=0.6), "the CPU quota stops the process in 60 % of the quota's periods"),
        (crowded(own=5.0, others=1.0), "the cause is unknown"),
    ],
)
def test_the_cause_is_what_differs(changes, said):
    now = LIKE._replace(seconds=0.017, **changes)
    assert slowness(now, nights(12, 0.02, pace=LIKE)) == f"17 × slower than the last 10 runs: {said}"
    # Runs of a Podline that did not count say nothing about tracing.
    assert slowness(USUAL._replace(seconds=0.004, traces=9), nights(12)).endswith(": the cause is unknown")


def test_a_first_run_is_held_against_what_the_machine_could_do():
    first = USUAL._replace(devices="cpu", load=ALONE)
    assert not slowness(first, [])
    said = "4.0 × slower than on this machine alone, by estimate: other processes use 6.0 of 8 cores"
    assert slowness(first._replace(**crowded(own=2.0, others=6.0)), []) == said
    assert not slowness(first._replace(**crowded(own=0.5, others=6.0)), []), "some cores were free"
    assert not slowness(USUAL._replace(**crowded(own=2.0, others=6.0)), []), "a GPU does the work"


def drifting(a_night: float, noise: float, seed: int) -> list[MachinePace]:
    """Paces of nights that become slower, by a factor each."""
    return [pace._replace(seconds=pace.seconds * a_night**n) for n, pace in enumerate(nights(90, noise, seed))]


def test_slow_growth_is_found_though_each_night_is_like_the_last_and_chance_is_no_growth():
    found, alarms = 0, 0
    for seed in range(300):
        paces = drifting(1.01, 0.1, seed)
        found += growth(paces[-11:], paces[-71:-61]) != ""
        alarms += slowness(paces[-1], paces[:-1]) != ""
    assert found >= 0.95 * 300
    assert alarms <= 0.01 * 300
    for noise in (0.05, 0.2):
        grown = sum(growth((paces := drifting(1, noise, seed))[-11:], paces[:10]) != "" for seed in range(1000))
        assert grown <= 0.005 * 1000


def test_growth_over_months_is_read_from_the_ledger(tmp_path):
    store = open_store(tmp_path)
    for number in range(75):
        entry = night(number)
        speed = entry.training.model_copy(update={"examples_per_second": 400.0 * 0.99**number})
        ledger.publish(store, entry.model_copy(update={"training": speed}))
    settings, now = night().settings["recipe"], paces_of(entry)["train"]
    found = slow_training(store, "cifar10", settings, now, until=entry.ended)
    assert found == "1.8 × slower than 10 runs two months before: the cause is unknown"
    assert slow_training(store, "cifar10", settings, now, until=night(50).ended) == ""


USUAL_SPENT = [{"steps": 500.0 + number, "store": 20.0 + 10 * number, "saving": 40.0} for number in range(7)]


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({"steps": 900.0, "store": 50.0}, []),
        ({"store": 220.0}, []),  # within six standard deviations of 50 ± 30
        ({"store": 230.0}, ["waiting for the store: 3 min 50 s, usually 50 s in the last 7 nights"]),
        ({"lost": 20.0}, []),  # less than a twentieth of a night
        ({"lost": 60.0}, ["work that a failure or a kill lost: 1 min, none in the last 7 nights"]),
    ],
)
def test_a_class_of_time_that_took_more_than_usual_is_named(spent, words):
    assert losses(spent, USUAL_SPENT) == words
    assert losses(spent, USUAL_SPENT[:2]) == []


def test_enough_recent_runs_on_the_same_devices_are_compared() -> None:
    slow = USUAL._replace(seconds=0.04)
    assert not slowness(slow, nights(2))
    assert slowness(slow, nights(3))
    assert not slowness(USUAL._replace(seconds=0.003), nights(10, 0.8)), "they are spread widely"
    cpu = MachinePace(0.02, 0.03, "cpu", "auto", 8, "a")
    before = [*nights(7), *nights(3, pace=cpu)]
    assert not slowness(cpu, before)
    assert "cpu instead of gpu" in slowness(cpu, before[:-1])
    assert not slowness(USUAL, before)
    faster = nights(20, pace=USUAL._replace(seconds=0.0001))
    assert not slowness(USUAL, [*faster, *nights(MOST)]), "only the latest count"


def test_the_ledger_tells_of_a_stage_that_did_its_work(tmp_path):
    store = open_store(tmp_path)
    for number in range(4):
        entry = night(number)
        speed = entry.training.model_copy(update={"examples_per_second": 400.0 + number, "traces": 3})
        ledger.publish(store, entry.model_copy(update={"training": speed}))
    # One that found the training of the last one done.
    ledger.publish(store, night(5).model_copy(update={"training": speed}))
    ledger.publish(store, night(6, recipe="mnist"))
    settings = night().settings["recipe"]
    found = earlier(store, "cifar10", settings, night(9).ended)
    assert [round(1 / pace.seconds) for pace in found] == [400, 401, 402, 403]
    assert found[0][1:] == (0.1, "1 CPU", "cpu", 2, "host", 3, None)
    assert earlier(store, "cifar10", settings, night(9).ended, found[-1]) == found[:-1]
    assert earlier(store, "cifar10", settings | {"schedule": {"learning_rate": 1.0}}, night(9).ended) == []
    # A training counts though the run failed after it.
    ledger.publish(store, night(0, recipe="failed").model_copy(update={"state": "failed", "outcome": None}))
    ledger.publish(store, night(1, recipe="failed", state="cancelled", training=None))
    assert len(earlier(store, "failed", settings, night(9).ended)) == 1
    # What was done on another day has no pace on this one.
    took = StageTime(seconds=0.1, seconds_when_made=60.0, reused=False)
    stages = {"convert": took, "validate": took.model_copy(update={"reused": True}), "evaluate": took}
    found = paces_of(night(stages=stages))
    assert set(found) == {"train", "convert", "evaluate"}
    assert (found["convert"].seconds, found["evaluate"].seconds) == (60 / 600, 60 / 100)
