"""What the report tells of a pose network beside what it tells of every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podline.documents.manifest import Manifest
from podline.documents.pose_evaluation import PoseEvaluation
from podline.reporting.facts import RunFacts
from podline.reporting.judged_pictures import JudgedPicture, MapsOfImage, judged_pictures, maps_of_image
from podline.stages.specs import ReportSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class PoseFacts(RunFacts):
    """A pose network's run.

    Attributes:
        evaluation: the figures.
        pictures: the best, the median and the worst images of the split that was judged, by that name.
        seen: likewise, of images that were trained on.
        maps: what the network answers for one image; None where there is nobody to find.
    """

    evaluation: PoseEvaluation
    pictures: dict[str, list[JudgedPicture]]
    seen: dict[str, list[JudgedPicture]]
    maps: MapsOfImage | None


def gather(
    store: Store, spec: ReportSpec, manifest: Manifest, evaluation: PoseEvaluation, shared: dict[str, Any]
) -> PoseFacts:
    """The facts of a run; see :func:`podline.reporting.class_facts.gather`."""
    return PoseFacts(
        **shared,
        pictures=judged_pictures(store, spec, manifest, evaluation, seen=False),
        seen=judged_pictures(store, spec, manifest, evaluation, seen=True),
        maps=maps_of_image(store, spec, manifest, evaluation),
    )
