"""Finds the examples that one classifier got right and another one wrong."""

from __future__ import annotations

from podline.compare.answers import LostExamples
from podline.compare.figures import Compared
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.by_example.lost_answers import lost_images
from podline.kinds.classification.document import Evaluation


def lost_examples(
    compared: Compared, reader: SplitReader, manifest: Manifest, before: Evaluation, after: Evaluation
) -> LostExamples:
    """Return examples that only the first classifier got right, most confident first."""
    del manifest, after  # both evaluations have the names
    then, now, names = compared.known[0], compared.candidate, before.class_names

    def lost(place: int) -> tuple[str, str, str]:
        was, is_now = (
            f"{names[each.predictions[place]]}, {100 * each.confidences[place]:.0f} %" for each in (then, now)
        )
        return names[now.labels[place]], was, is_now

    return lost_images(compared, reader, then.right, now.right, -then.confidences, lost)
