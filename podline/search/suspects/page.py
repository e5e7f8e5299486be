"""The page of a search for doubtful labels: the expectations, and a picture of each suspect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from podline.base import figures
from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.metric import Metric
from podline.documents.suspects import Suspect, SuspectsDocument
from podline.report.blocks import Block, Code, Kicker, Picture, Pictures, Table, Text, Title
from podline.report.document import document as page_of
from podline.report.pictures import data_uri

# Number of pictures on a page; the table for the review has all suspects.
_SHOWN = 300


def page(document: SuspectsDocument, readers: Mapping[str, SplitReader]) -> str:
    """Render a search for doubtful labels as HTML.

    Args:
        document: the record of the search.
        readers: readers of each split of the data set.
    """
    suspects = document.suspects
    header: list[Block] = [
        Kicker([document.dataset, document.fingerprint]),
        Title(figures.count(len(suspects)), "suspicious labels", document.dataset),
    ]
    sections = [
        ("What to expect", [*_expected(document)]),
        ("Suspects", [*_pictures(suspects, readers)]),
        (
            "What to do",
            [Text("A table to fill in:"), Code(f"podline data review {document.dataset}")],
        ),
    ]
    return page_of(f"{document.dataset}: suspects", header, sections)


def _expected(document: SuspectsDocument) -> Iterator[Block]:
    rows = [
        {
            "split": split.split,
            "labels": figures.count(split.examples),
            "suspects": figures.count(len(split.suspects)),
            "wrong among the suspects": "no suspects" if split.precision is None else _share(split.precision),
            "wrong in the whole split": "{value:.0f} [{low:.0f}, {high:.0f}]".format(**dict(split.expected)),
            "near-duplicates with other labels": figures.count(len(split.pairs)),
        }
        for split in document.splits
    ]
    yield Table.of(rows)
    yield Text(
        f"{len(document.runs)} models were trained, each without a part of the training split, and checked that part; "
        "the mean of all models checked other splits. Canaries, records whose label was swapped before the check, show "
        "how many wrong labels are found. Intervals are 95 % intervals. Real mistakes are between similar classes, and "
        "are harder to find than swapped labels.",
        "note",
    )


def _share(found: Metric) -> str:
    return f"{100 * found.value:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def _pictures(suspects: list[Suspect], readers: Mapping[str, SplitReader]) -> Iterator[Block]:
    if not suspects:
        yield Text("No labels are suspicious.")
        return
    pictures = []
    for number, suspect in enumerate(suspects[:_SHOWN], start=1):
        image = readers[suspect.split].gather(np.array([suspect.record]), (IMAGE,))[IMAGE][0]
        details = [f"{suspect.suggested}?", *([suspect.file] if suspect.file else [])]
        pictures.append(Picture([(data_uri(image), suspect.words())], f"{number}: {suspect.label}", details))
    yield Pictures(pictures)
    if len(suspects) > _SHOWN:
        yield Text(f"These are the first {_SHOWN} of {len(suspects):,}.", "note")
