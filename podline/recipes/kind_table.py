"""Finds the facts of a kind of task by name, Podline's or an installed package's, and reads evaluations."""

from __future__ import annotations

import contextlib

from podline.base.errors import ArtifactError, SettingsError
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.reading import validated
from podline.recipes.kind_facts import KindFacts
from podline.recipes.own_code import of_modules
from podline.recipes.targets import TextTargets
from podline.recipes.task import KINDS
from podline.store.contract import Store


def facts_named(name: str) -> KindFacts:
    """Return the facts of the kind with this name.

    Raises:
        SettingsError: the kind does not exist, its package cannot be imported, or the object is not a kind's facts.
    """
    found: object = KINDS.load(name)
    if isinstance(found, KindFacts):
        return found
    raise SettingsError(f"kind of task {name}: got {found!r}, expected a podline.recipes.kind_facts.KindFacts")


def all_facts() -> list[KindFacts]:
    """Return the facts of all kinds that can be loaded, Podline's own first."""
    found = list[KindFacts]()
    for name in KINDS.names():
        with contextlib.suppress(SettingsError):
            found.append(facts_named(name))
    return found


def facts_by_measure(measure: str) -> KindFacts:
    """Return the facts of the installed kind that ranks models by this measure."""
    for facts in all_facts():
        if facts.measure == measure:
            return facts
    raise SettingsError(f"no kind of task ranks models by {measure}; install the package with the run's kind")


def text_targets(name: str) -> TextTargets:
    """Return the targets of a kind that can be given as text.

    Raises:
        SettingsError: the kind does not exist, or its targets cannot be given as text.
    """
    targets = facts_named(name).targets
    if isinstance(targets, TextTargets):
        return targets
    raise SettingsError(
        f"the kind {name} has no targets as text, so a text for each image is not enough; use a data set of this kind"
    )


def code_of_targets(name: str) -> str:
    """Return the digest of the code that makes an installed kind's targets; empty for Podline's kinds."""
    return of_modules([type(facts_named(name).targets).__module__])


def read_evaluation(store: Store, folder: str, sha256: str = "") -> AnyEvaluation:
    """Return the evaluation in a run's folder, of any kind.

    Args:
        store: the store with the run.
        folder: the run's folder.
        sha256: the expected checksum, from a stage's spec; empty for any.

    Raises:
        StoreError: there is no evaluation, or it cannot be read.
        ArtifactError: the file is not an evaluation, or has another checksum.
    """
    name = f"{folder}/{EVALUATION}"
    document = store.read_json(name)
    if sha256 and (found := store.sha256(name)) != sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {found[:12]}… vs {sha256[:12]}… in the stage's spec; "
            "evaluate the run again"
        )
    kind = document.get("kind")
    if kind not in (known := KINDS.names()):
        raise ArtifactError(
            f"{store.where(name)}: got kind={kind}, expected {', '.join(known)}; evaluate the run again"
        )
    model = facts_named(str(kind)).document
    return validated(document, model, store.where(name), "an evaluation", "evaluate the run again")
