"""What the report tells of a classifier beside what it tells of every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.reader import open_split
from podline.documents.evaluation import Evaluation
from podline.documents.manifest import Manifest
from podline.reporting.facts import RunFacts
from podline.stages.specs import ReportSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class ClassFacts(RunFacts):
    """A classifier's run.

    Attributes:
        evaluation: the figures.
        mistakes: images of ``evaluation.mistakes``, uint8 (n, height, width, channels).
    """

    evaluation: Evaluation
    mistakes: npt.NDArray[np.uint8]


def gather(
    store: Store, spec: ReportSpec, manifest: Manifest, evaluation: Evaluation, shared: dict[str, Any]
) -> ClassFacts:
    """The facts of a run.

    Args:
        store: the store.
        spec: what the report was asked for.
        manifest: of the data set.
        evaluation: of the run.
        shared: what :class:`podline.reporting.facts.RunFacts` holds, by name.
    """
    return ClassFacts(**shared, mistakes=_mistakes(store, spec, manifest, evaluation))


def _mistakes(store: Store, spec: ReportSpec, manifest: Manifest, evaluation: Evaluation) -> npt.NDArray[np.uint8]:
    reader = open_split(store, spec.dataset_folder, manifest, evaluation.split)
    records = np.array([mistake.record for mistake in evaluation.mistakes], np.int64)
    return reader.gather(records, ["image"])["image"]
