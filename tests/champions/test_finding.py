"""When an earlier decision about a promotion is still valid."""

from __future__ import annotations

import pytest

from podline.base.progress import silent
from podline.champions.finding import find
from podline.documents.champions import Candidate, champion, crown
from podline.documents.promotion import Check, Promotion
from podline.stages.completed import complete
from podline.stages.specs import PromoteResult, PromoteSpec
from podline.store.opening import open_store

RUN, RIVAL, LATER = "t-1", "t-0", "t-2"


@pytest.mark.parametrize(
    ("verdict", "rule", "champions", "valid"),
    [
        ("promoted", "", (RIVAL, RUN), True),
        ("promoted", "", (RIVAL, RUN, RIVAL), True),  # a rollback is not undone
        ("promoted", "", (RIVAL,), False),
        ("refused", "main", (RIVAL,), True),
        ("refused", "main", (RIVAL, LATER), False),
        ("refused", "main", (), False),
        ("refused", "export", (RIVAL,), False),  # the file may have been written again
        ("undecided", "main", (RIVAL,), False),
    ],
)
def test_a_decision_is_found_while_it_is_valid(tmp_path, verdict, rule, champions, valid):
    store, promoted = open_store(tmp_path), verdict == "promoted"
    named = {"run": RUN, "recipe": "t"}
    of = {"root": store.uri, "weights_sha256": "w", "dataset": "sample", "fingerprint": "f", "evaluation_sha256": "e"}
    spec = PromoteSpec(**named, **of)
    check = Check(rule=rule, name="accuracy", refused=verdict == "refused", shown=False, message="worse")
    named |= {"promoted": promoted, "reference": RIVAL, "measure": "top1"}
    decided = {"undecided": verdict == "undecided", "checks": (check,) if rule else (), "exports": ()}
    document = Promotion(weights_sha256="w", champion=RIVAL, known=(), **named, **decided)
    name = f"{spec.folder}/promotion.json"
    store.publish_json(name, document.model_dump(mode="json"))
    doubt = "more trainings would decide" if verdict == "undecided" else ""
    result = PromoteResult(doubt=doubt, headline="decided", promotion_sha256=store.sha256(name), **named)
    complete(store, spec.folder, spec, result, [name])
    for run in champions:
        crown(store, "t", Candidate(run, "w", "sample", "f"), champion(store, "t"), "promoted")
    assert (find(spec, silent()) is not None) == valid
    assert find(spec.model_copy(update={"again": True}), silent()) is None
