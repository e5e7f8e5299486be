"""Nights of one recipe, made up: runs that are done, each with its entry in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finished_run import NOON, finished_run
from ledger_entries import DAY, night

from podline.documents.ledger_entry import Entry
from podline.documents.promotion import PROMOTION, Check, Promotion
from podline.ledger import ledger
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.recording import outcome_of, plain
from podline.recipes.kind_table import read_evaluation
from podline.stages.specs import ReportSpec
from podline.store.opening import open_store

# As the model became better, and then a little worse.
ACCURACIES = (0.70, 0.72, 0.71, 0.76, 0.78, 0.77, 0.80, 0.83, 0.81, 0.84)


def finished_nights(root: Path) -> list[ReportSpec]:
    """Puts ten nights into a store, one a day, the last one at noon of the day on which all of them were trained."""
    specs = []
    for number, accuracy in enumerate(ACCURACIES):
        specs.append(finished_run(root, seed=number, accuracy=accuracy, records=400))
        entered(specs[-1], NOON - (len(ACCURACIES) - 1 - number) * DAY)
    return specs


def entered(spec: ReportSpec, ended: float, **changes: Any) -> Entry:
    """Puts the entry of a finished run into the ledger."""
    store = open_store(spec.root)
    recipe, data = training_of(store, spec.run).recipe, night().data
    assert data
    values = {
        "recipe": recipe.name,
        "run": spec.run,
        "settings": {"recipe": plain(recipe), "machine": {}},
        "data": data.model_copy(update={"dataset": spec.dataset, "fingerprint": spec.fingerprint}),
        "outcome": outcome_of(read_evaluation(store, spec.folder), 412_310, 1_649_240, spec.evaluation_sha256),
        "report": f"{spec.folder}/report.html",
    }
    entry = night(int((ended - NOON) // DAY), **{**values, **changes})
    ledger.publish(store, entry)
    return entry


def decided(spec: ReportSpec, against: str, refusals: Sequence[str]) -> ReportSpec:
    """Put into a run's folder that it is refused for some classes, against a champion; return the report of that."""
    store, name = open_store(spec.root), f"{spec.folder}/{PROMOTION}"
    decision = Promotion(
        run=spec.run,
        recipe="cifar10",
        weights_sha256="ab" * 32,
        reference=against,
        champion=against,
        known=(against,),
        measure="top1",
        promoted=False,
        number=0,
        checks=tuple(
            Check(rule="class", name=name, before=0.9, after=0.4, refused=True, shown=False, message=f"{name}: <worse>")
            for name in refusals
        ),
        exports=(),
    )
    store.publish_json(name, decision.model_dump(mode="json"), replace=True)
    return spec.model_copy(update={"promotion_sha256": store.sha256(name)})
