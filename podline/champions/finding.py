"""Finds an earlier promotion decision."""

from __future__ import annotations

from podline.base.progress import Reporter
from podline.documents import champions
from podline.documents.promotion import read_promotion
from podline.stages import completed
from podline.stages.specs import PromoteResult, PromoteSpec
from podline.store.opening import open_store


def find(spec: PromoteSpec, reporter: Reporter) -> PromoteResult | None:
    """Return an earlier decision about the same model by the same rules if the decision is still valid, else None.

    A promotion stays valid after a rollback, so a later night that reuses the run does not promote it again. A refusal
    is valid while the champion is the same, unless an export was refused. After an undecided test, the model is judged
    again, since more trainings of the recipe may exist now.
    """
    store = open_store(spec.root)
    found: PromoteResult | None = None if spec.again else completed.find(spec, reporter)
    if found is None or found.verdict == "undecided":
        return None
    entries = champions.history(store, spec.recipe)
    if found.promoted:
        return found if any(entry.run == spec.run for entry in entries) else None
    decision = read_promotion(store, spec.folder)
    now = entries[-1].run if entries else ""
    if decision is None or decision.champion != now:
        return None
    # The damaged export may have been rewritten.
    return None if any(check.rule == "export" for check in decision.refusals) else found
