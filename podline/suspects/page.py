"""The page of a pass over a data set's labels: what to expect, and the picture of each suspect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from podline import figures
from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.suspects import Interval, Suspect, SuspectsDocument
from podline.reporting.blocks import Block, Code, Kicker, Picture, Pictures, Table, Text, Title
from podline.reporting.document import document as page_of
from podline.reporting.pictures import data_uri

# Pictures on a page; the table of a review has all.
_SHOWN = 300


def page(document: SuspectsDocument, readers: Mapping[str, SplitReader]) -> str:
    """Return a pass as HTML.

    Args:
        document: its record.
        readers: of each split of the data set.
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
            [Text("A table, to be filled in by a person:"), Code(f"podline data review {document.dataset}")],
        ),
    ]
    return page_of(f"{document.dataset}: suspects", header, sections)


def _expected(document: SuspectsDocument) -> Iterator[Block]:
    rows = [
        {
            "split": split.split,
            "labels": figures.count(split.examples),
            "suspects": figures.count(len(split.suspects)),
            "of them wrong": "none expected" if split.precision is None else _share(split.precision),
            "wrong in the whole split": "{value:.0f} [{low:.0f}, {high:.0f}]".format(**dict(split.expected)),
            "near-duplicates with other labels": figures.count(len(split.pairs)),
        }
        for split in document.splits
    ]
    yield Table.of(rows)
    yield Text(
        f"{len(document.runs)} models were trained, each without a part of the training split, and judged that part; "
        "other splits are judged by the mean of all. How well they find wrong labels is known from canaries: records "
        "whose label was swapped for another class before it was judged. Intervals are of 95 %. Real mistakes are "
        "between classes that look alike, and are harder to find than swapped labels.",
        "note",
    )


def _share(found: Interval) -> str:
    return f"{100 * found.value:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def _pictures(suspects: list[Suspect], readers: Mapping[str, SplitReader]) -> Iterator[Block]:
    if not suspects:
        yield Text("There are none.")
        return
    pictures = []
    for number, suspect in enumerate(suspects[:_SHOWN], start=1):
        image = readers[suspect.split].gather(np.array([suspect.record]), (IMAGE,))[IMAGE][0]
        details = [f"{suspect.suggested}?", *([suspect.file] if suspect.file else [])]
        pictures.append(Picture([(data_uri(image), suspect.words())], f"{number}: {suspect.label}", details))
    yield Pictures(pictures)
    if len(suspects) > _SHOWN:
        yield Text(f"These are the first {_SHOWN} of {len(suspects):,}.", "note")
