"""Numbers in a table beside images: a data set, and a recipe for it.

podline run numbers --source DIR
"""

from __future__ import annotations

from number_kind import NumberSettings
from podline.recipes.datasets import DataSet
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, OptimizerSettings, Recipe, ScheduleSettings

NUMBERS = DataSet(
    "numbers",
    open="podline.data.images.opening:open_images",
    kind="number",
    settings="number_kind.records:NumberImages",
    several=True,
)
RECIPE = Recipe(
    name="numbers",
    dataset="numbers",
    task=NumberSettings(unit=10.0),
    model=ModelSettings(kind="linear"),
    batch_size=32,
    duration=Duration(steps=300),
    optimizer=OptimizerSettings(kind="adam"),
    schedule=ScheduleSettings(kind="cosine", learning_rate=0.003),
)
