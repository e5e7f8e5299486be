"""Entries of the ledger, made up: what a night leaves, with anything changed."""

from __future__ import annotations

from typing import Any

from podline.documents.ledger_entry import (
    CodeVersion,
    Data,
    Entry,
    Environment,
    Outcome,
    Split,
    StageTime,
    State,
    Training,
    WaitingTime,
)
from podline.documents.metric import Metric
from podline.ledger.ledger import name_of

NOON = 1_795_262_400.0
DAY = 86_400.0
STAGES = ("convert", "validate", "train", "evaluate", "report")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def night(number: int = 0, *, recipe: str = "cifar10", state: State = "finished", **changes: Any) -> Entry:
    """Return the entry of a night; each accuracy is a thousandth better than that of the night before."""
    ended = NOON + number * DAY
    finished = state == "finished"
    entry = Entry(
        name=name_of(ended, recipe, state),
        state=state,
        began=ended - 600.0,
        ended=ended,
        way="flow",
        flow_run=f"00000000-0000-0000-0000-{number:012d}",
        started="schedule",
        schedule=f"{recipe}-nightly",
        run=f"{recipe}-{number:012x}",
        recipe=recipe,
        settings={"recipe": {"seed": number, "schedule": {"learning_rate": 0.1}}, "machine": {"strategy": "cpu"}},
        overridden={"seed": number},
        seeds={"recipe": number, "data": 0},
        code=CodeVersion(version="0.1.0", commit="c0ffee" * 6 + "c0ff"),
        data=Data(
            dataset=recipe,
            fingerprint="0123456789abcdef",
            splits={"train": Split(records=500, sha256="1" * 64), "test": Split(records=100, sha256="2" * 64)},
            classes=10,
        ),
        environment=Environment(
            python="3.11.9 (CPython)",
            platform="Linux",
            machine="host",
            cores=2,
            memory=8 * 2**30,
            strategy="cpu",
            devices="1 CPU",
            packages={"tensorflow": "2.21.0", "numpy": "2.4.0"},
        ),
        stages={stage: StageTime(seconds=10.0, seconds_when_made=10.0, reused=False) for stage in STAGES},
        waiting=WaitingTime(start=1.0, tpu=2.0),
        training=Training(
            steps=100,
            epochs=10.0,
            examples=5000,
            loss=0.5,
            seconds=30.0,
            examples_per_second=400.0,
            waiting_for_input=0.1,
        )
        if finished
        else None,
        outcome=outcome(0.8 + number / 1000) if finished else None,
        error="" if finished else "DivergenceError",
        cause="" if finished else "step 7: the loss is nan",
    )
    return entry.model_copy(update=changes)


def outcome(accuracy: float, **changes: Any) -> Outcome:
    """What comes of a classifier with an accuracy; the cat is its worst class."""
    made = Outcome(
        split="test",
        measure="top1",
        examples=100,
        metrics={
            "top1": Metric(value=accuracy, low=accuracy - 0.05, high=accuracy + 0.05),
            "loss": Metric(value=0.6, low=0.5, high=0.7),
            "calibration_error": Metric(value=0.02, low=0.02, high=0.02),
        },
        untrained=0.1,
        parts={name: Metric(value=0.6 if name == "cat" else accuracy, low=0.5, high=0.95) for name in CLASSES},
        parameters=1000,
        model_bytes=4321,
        weights_sha256="3" * 64,
        evaluation_sha256="4" * 64,
    )
    return made.model_copy(update=changes)
