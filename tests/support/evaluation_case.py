"""A case for judges that are given answers in place of models."""

from __future__ import annotations

import tensorflow as tf

from podline.base.progress import Reporter, silent
from podline.contract.case import Case
from podline.documents.manifest import Manifest
from podline.recipes.settings import Recipe
from podline.stages.specs import EvaluateSpec
from podline.store.contract import Store


def case_of(
    spec: EvaluateSpec, recipe: Recipe, store: Store, manifest: Manifest, reporter: Reporter | None = None
) -> Case:
    """What an evaluation is of, without models."""
    return Case(spec, recipe, None, None, tf.distribute.get_strategy(), store, manifest, reporter or silent())
