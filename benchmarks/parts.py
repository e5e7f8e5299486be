"""What training steps are made of, as a run makes it: of a data set, a recipe and a strategy."""

from __future__ import annotations

from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.input.pipeline import TrainingInput
from podline.kinds.table import kind_of
from podline.recipes.settings import Recipe
from podline.store.opening import open_store
from podline.training.plan import TRAINING_SPLIT, plan_training
from podline.training.run import initial_state, prepared
from podline.training.steps import TrainingSteps


class Parts:
    """A recipe's training, from fresh weights, whose steps may be taken several times.

    Attributes:
        recipe: what is trained.
        manifest: of the data set.
        plan: order and schedule.
        strategy: what it runs under.
        objective: what is minimised and counted.
        state: fresh weights.
    """

    def __init__(self, recipe: Recipe, root: str, folder: str, strategy: str) -> None:
        """Builds the model.

        Args:
            recipe: what is trained.
            root: the store.
            folder: the data set's folder in it.
            strategy: the name of what it runs under.
        """
        store = open_store(root)
        self.recipe, self.manifest = recipe, read_manifest(store, folder)
        self.plan, self.objective = (
            plan_training(recipe, self.manifest),
            kind_of(recipe).objective(recipe, self.manifest),
        )
        self.strategy = prepared(recipe, strategy)
        self.state = initial_state(recipe, self.manifest, self.strategy)
        self._reader = open_split(store, folder, self.manifest, TRAINING_SPLIT)

    def steps(self, kind: type[TrainingSteps] = TrainingSteps) -> TrainingSteps:
        """Steps from the beginning; all of them train the same state, which does not change what a step costs."""
        order, total = self.plan.order, self.plan.total_steps
        batches = TrainingInput(
            self._reader,
            self.manifest,
            self.objective.fields,
            order=order,
            augmentation=self.recipe.image_augmentation,
        )
        dataset = self.strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(0, total, context=context)
        )
        return kind(self.strategy, self.state, self.plan.schedule, self.objective, dataset, order.batch_size)
