"""The objective of a recipe."""

from __future__ import annotations

from podline.recipes.settings import Recipe
from podline.training.objective import Classification, Objective


def objective_of(recipe: Recipe) -> Objective:
    """What a recipe trains for."""
    if recipe.pose is None:
        return Classification(smoothing=recipe.label_smoothing)
    from podline.training.pose_objective import Pose  # noqa: PLC0415 (it is an objective, and imports this module)

    return Pose(recipe.pose)
