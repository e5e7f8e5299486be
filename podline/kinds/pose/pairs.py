"""Compares two pose networks image by image."""

from __future__ import annotations

from podline.data.reader import SplitReader
from podline.data.sources.coco_truth import read_truth
from podline.documents.manifest import dataset_folder, read_manifest
from podline.errors import StoreError
from podline.kinds.pose.document import PoseEvaluation, read_people
from podline.kinds.pose.lost_people import Found, FoundPair, drawn, lost_people
from podline.kinds.pose.oks import judged
from podline.plurals import plural
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store

MOST_IMAGES = 8
"""The number of images that are listed and shown."""


def pair(store: Store, before: Judged, after: Judged) -> FoundPair:
    """Pair two evaluations on the same examples; see :func:`podline.reporting.pairs.paired`."""
    manifests = [read_manifest(store, dataset_folder(each.dataset, each.fingerprint)) for each in (before, after)]
    truths = [
        read_truth(store, manifest.folder, manifest, each.split)
        for manifest, each in zip(manifests, (before, after), strict=True)
    ]
    if truths[0] != truths[1]:
        raise StoreError("the test sets differ: other images, or other annotations of them")
    people = [read_people(store, each.folder, each.split) for each in (before, after)]
    then, now = (judged(truths[0], each) for each in people)
    return FoundPair(then, now, manifests[1].skeleton)


def lost_examples(pair: FoundPair, reader: SplitReader, before: PoseEvaluation, after: PoseEvaluation) -> LostExamples:
    """Return images in which the second network finds fewer joints, largest loss first."""
    people = lost_people(pair, reader)
    shown = people.images[:MOST_IMAGES]
    thresholds = [each.score_threshold for each in (before, after)]
    return LostExamples(
        people.lost,
        people.gained,
        [
            LostExample(
                record=image.record,
                name=f"image {image.image_id}",
                before=_of_all(image.before, image.there),
                after=_of_all(image.after, image.there),
            )
            for image in shown
        ],
        [drawn(image, pair, reader, thresholds) for image in shown],
    )


def _of_all(found: Found, there: Found) -> str:
    people, joints = plural(there.people, "instance"), plural(there.joints, "joint")
    return f"{found.people} of {people}, {found.joints} of {joints}"
