"""A month of a store's runs, made up: nights with two real drops, and between them whatever a person does by day."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ledger_entries import DAY, NOON, night, outcome

from podline.documents.ledger_entry import Entry, Outcome, StageTime, Waiting
from podline.documents.metric import Metric
from podline.ledger.ledger import name_of

HOUR = 3600.0
EXAMPLES = 1000
# The nights whose model is worse than that of the night before, beyond doubt.
DROPS = (12, 24)
_DROPPED = {12: 0.80, 13: 0.93, 24: 0.70, 25: 0.93}
_STAGES = ("convert", "validate", "train", "evaluate", "report")


def month(seed: int = 0, nights: int = 30) -> Iterator[Entry]:
    """Entries, the oldest first: of a schedule's nights, of runs by hand, retries, refusals and a crash in training.

    Every sixth night finds nothing new, and so the model of the night before.

    Args:
        seed: of what chance does to the results.
        nights: how many there are.
    """
    chance = random.Random(seed)
    model = _judged(0.93, chance, 0)
    for number in range(nights):
        at = NOON + number * DAY
        if number % 6 == 5:
            yield _entry("night", at, model, reused=True)
        elif number % 10 == 8:
            yield _failed("night", at, number)
            model = _judged(0.93, chance, number)
            yield _entry("night", at + 2 * HOUR, model, started="retry", attempt=2)
        else:
            if number == 7:
                # Killed in training by a signal that it heard, so that it left an entry; a minute later it went on.
                yield _failed("night", at - HOUR, number, state="cancelled", cause="TerminationSignal: 15", at_night=at)
            model = _judged(_DROPPED.get(number, 0.93), chance, number)
            yield _entry("night", at, model)
        yield from _by_day(number, at + 3 * HOUR, chance)


def _by_day(number: int, at: float, chance: random.Random) -> Iterator[Entry]:
    """Longer trainings, shorter ones, and forms that are refused; other recipes."""
    hand: dict[str, Any] = {"started": "hand", "schedule": ""}
    if number % 5 == 2:
        yield _entry("longer", at, _judged(0.99, chance, 100 + number), steps=400, **hand)
    if number % 7 == 3:
        yield _entry("seed", at, _judged(0.6, chance, 200 + number), seed=number, **hand)
    if number % 8 == 4:
        cause = "duration: give one of steps, epochs, examples; steps = 3 vs epochs = 2.0"
        yield _failed("refused", at, number, error="SettingsError", cause=cause, run="", stages={}, **hand)
    if number == 20:
        yield _entry("mnist", at, _judged(0.995, chance, 300), recipe="mnist", **hand)


def _judged(accuracy: float, chance: random.Random, number: int) -> Outcome:
    """A model of some accuracy, judged on other examples than any before."""
    right = sum(chance.random() < accuracy for _ in range(EXAMPLES)) / EXAMPLES
    half = 1.96 * (right * (1 - right) / EXAMPLES) ** 0.5
    top1 = Metric(value=right, low=right - half, high=right + half)
    return outcome(right, examples=EXAMPLES, weights_sha256=f"{number:064x}", metrics={"top1": top1})


def _entry(
    kind: str, at: float, model: Outcome, *, steps: int = 100, seed: int = 0, reused: bool = False, **changes: Any
) -> Entry:
    entry = night(0, recipe=changes.get("recipe", "sample"))
    number = int(model.weights_sha256, 16)
    stages = {
        stage: StageTime(seconds=1.0 if reused else 40.0, seconds_when_made=40.0, reused=reused) for stage in _STAGES
    }
    data = entry.data and entry.data.model_copy(update={"fingerprint": f"{number * 7919:016x}"})
    values: dict[str, Any] = {
        "name": name_of(at, entry.recipe, "finished"),
        "began": at - (9.0 if reused else 260.0 + number % 17),
        "ended": at,
        "flow_run": f"{kind}-{at:.0f}",
        "run": f"{entry.recipe}-{number:012x}",
        "report": f"runs/{entry.recipe}-{number:012x}/report.html",
        "settings": {"recipe": {"seed": seed, "duration": {"steps": steps}, "annealing": None}},
        "overridden": {"duration.steps": steps, "seed": seed},
        "schedule": "cifar-nightly",
        "stages": stages,
        "data": data,
        "outcome": model,
        "waiting": Waiting(start=3.0 + number % 5, retries=45.0 if number % 9 == 4 else 0.0),
        "training": entry.training
        and entry.training.model_copy(update={"examples_per_second": 380.0 + 11 * (number % 7)}),
    }
    return entry.model_copy(update={**values, **changes})


def _failed(kind: str, at: float, number: int, *, at_night: float = 0.0, **changes: Any) -> Entry:
    """A run that ended before its time: what it had found done by then is convert and validate."""
    state = changes.get("state", "failed")
    stages = {stage: StageTime(seconds=1.0, seconds_when_made=30.0, reused=True) for stage in _STAGES[:2]}
    values: dict[str, Any] = {
        "name": name_of(at, "sample", state),
        "state": state,
        "began": at - 130.0,
        "stages": stages,
        "training": None,
        "outcome": None,
        "report": "",
        "error": "StoreError",
        "cause": "cannot write gs://podline-nights/store/runs/sample-690b3901f27b/stages/train.json: no space left on "
        "the device; free some, or choose another --root",
        "flow_run": f"{kind}-{at_night or at:.0f}",
    }
    return _entry(kind, at, outcome(0.5, weights_sha256=f"{number:064x}")).model_copy(update={**values, **changes})
