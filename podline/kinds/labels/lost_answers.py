"""Finds the examples that one model of several labels got right and another one wrong."""

from __future__ import annotations

from podline.compare.answers import LostExamples
from podline.compare.figures import Compared
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.by_example.lost_answers import lost_images
from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.records import words_of


def lost_examples(
    compared: Compared, reader: SplitReader, manifest: Manifest, before: LabelsEvaluation, after: LabelsEvaluation
) -> LostExamples:
    """Return examples for which only the first model got all labels right, largest loss of certainty first."""
    del manifest, after  # both evaluations have the names
    then, now, names = compared.known[0], compared.candidate, before.class_names

    def lost(place: int) -> tuple[str, str, str]:
        truth, was, is_now = (words_of(each[place], names) for each in (then.labels, then.named, now.named))
        return truth, was, is_now

    return lost_images(compared, reader, then.right, now.right, then.losses - now.losses, lost)
