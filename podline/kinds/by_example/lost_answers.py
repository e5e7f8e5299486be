"""Lists the examples that one model answered better than another."""

from __future__ import annotations

import numpy as np

from podline.contract.answers import LostExample, LostExamples
from podline.contract.rules import Compared
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.by_example.hooks import A, ExampleHooks
from podline.kinds.by_example.measures import gains_of
from podline.recipes.measures import measure_named

MOST_EXAMPLES = 24
"""The number of examples that are listed and shown."""


def lost_examples(
    kind: ExampleHooks[A], compared: Compared[A], reader: SplitReader, manifest: Manifest
) -> LostExamples:
    """Return the examples that only the first model answered correctly, or that it answered better.

    The result is empty if answers are neither right nor wrong and the main measure is not a mean over examples.
    """
    before, after = compared.known[0], compared.candidate
    was, now = before.right, after.right
    if was is not None and now is not None:
        lost, gained = was & ~now, now & ~was
    else:
        gain = gains_of(measure_named(kind.measure), before, after)
        lost, gained = gain < 0, gain > 0
    places = np.flatnonzero(lost)
    chosen = places[np.argsort(kind.lost_order(before, after)[places], kind="stable")][:MOST_EXAMPLES]
    records = chosen if compared.places is None else compared.places[chosen]
    images = reader.gather(records, ["image"])["image"] if len(records) else ()
    names = kind.truths(after.labels[chosen], manifest)
    words = (kind.words(each.at(chosen), manifest) for each in (before, after))
    examples = [
        LostExample(record=record, name=name, before=then, after=now)
        for record, name, then, now in zip(records.tolist(), names, *words, strict=True)
    ]
    return LostExamples(len(places), int(gained.sum()), examples, [(image,) for image in images])
