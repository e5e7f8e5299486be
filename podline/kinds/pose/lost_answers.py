"""Lists the images in which one pose network finds fewer joints than another."""

from __future__ import annotations

from typing import Any

from podline.base.plurals import plural
from podline.contract.answers import LostExample, LostExamples
from podline.contract.rules import Compared
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.lost_people import FoundPair, FoundPeople, drawn, lost_people

MOST_IMAGES = 8
"""The number of images that are listed and shown."""


def lost_examples(
    compared: Compared[Any], reader: SplitReader, manifest: Manifest, before: PoseEvaluation, after: PoseEvaluation
) -> LostExamples:
    """Return images in which the second network finds fewer joints than the first, largest loss first."""
    pair = FoundPair(compared.known[0], compared.candidate, manifest.skeleton)
    people = lost_people(pair, reader)
    shown = people.images[:MOST_IMAGES]
    thresholds = [each.score_threshold for each in (before, after)]
    examples = [
        LostExample(
            record=image.record,
            name=f"image {image.image_id}",
            before=_of_all(image.before, image.there),
            after=_of_all(image.after, image.there),
        )
        for image in shown
    ]
    return LostExamples(
        people.lost, people.gained, examples, [drawn(image, pair, reader, thresholds) for image in shown]
    )


def _of_all(found: FoundPeople, there: FoundPeople) -> str:
    people, joints = plural(there.people, "instance"), plural(there.joints, "joint")
    return f"{found.people} of {people}, {found.joints} of {joints}"
