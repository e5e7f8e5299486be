"""What comes of each version of the data when nothing goes wrong: the stages called one after the other, as functions.

``python -m undisturbed_nights FOLDER VERSION …`` prints a line of JSON: the figures of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from night_stages import real_stages
from night_world import PARAMETERS, draw

from podline.progress import silent
from podline.settings import Settings
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import Spec
from podline.stages.table import stage_of
from podline.store.opening import open_store
from podline.tasks.parameters import TrainingForm
from podline.tasks.sources import conversion


def figures(folder: Path, data: int) -> dict[str, Any]:
    """The figures of one version."""
    draw(folder / "raw", data)
    root = str(folder / "root")
    given = TrainingForm.model_validate(PARAMETERS | {"source": str(folder / "raw"), "machine": {"root": root}})
    converted = _run(conversion(given, open_store(root), Settings()))
    training = training_spec(open_store(root), given.training_recipe(), converted.fingerprint, Settings().strategy)
    trained = _run(training)
    evaluated = _run(evaluation_spec(training, trained))
    metrics = {name: metric.model_dump(mode="json") for name, metric in evaluated.metrics.items()}
    return {"run": trained.run, "weights": trained.weights_sha256, "metrics": metrics}


def _run(spec: Spec) -> Any:
    stage = stage_of(spec).name
    return real_stages()[stage].run(spec, silent(stage))


if __name__ == "__main__":
    folder, *versions = sys.argv[1:]
    answer = {data: figures(Path(folder), int(data)) for data in versions}
    sys.stdout.write(json.dumps(answer) + "\n")
