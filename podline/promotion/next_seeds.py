"""Which trainings would be known next of a champion's recipe. Needs no TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from podline.documents.completion import completion_name
from podline.inventory.catalogue import training_of
from podline.stages.from_recipe import training_spec
from podline.stages.specs import TrainSpec
from podline.stages.table import EVALUATE
from podline.store.contract import Store
from podline.strategies import StrategyName


def next_trainings(store: Store, champion: str, strategy: StrategyName) -> Iterator[TrainSpec]:
    """A champion's training with the seeds of which no run was evaluated, the lowest first; there is no last one.

    Args:
        store: the store.
        champion: the run.
        strategy: where they are to run.

    Raises:
        StoreError: the run or its data set is gone.
    """
    of = training_of(store, champion)
    for seed in itertools.count():
        training = training_spec(store, of.recipe.model_copy(update={"seed": seed}), of.fingerprint, strategy)
        if not store.exists(completion_name(training.folder, EVALUATE.name)):
            yield training
