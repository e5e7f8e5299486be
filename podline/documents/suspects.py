"""The record of a search for doubtful labels, ``suspects/<dataset>/<digest>/suspects.json``, beside its page."""

from __future__ import annotations

import operator

from pydantic import Field

from podline.base.errors import StoreError
from podline.base.frozen import Frozen
from podline.documents.metric import Metric
from podline.documents.reading import read_model
from podline.store.contract import Store

FOLDER, DOCUMENT, PAGE = "suspects", "suspects.json", "suspects.html"


class Suspect(Frozen):
    """A record with a doubtful label.

    Attributes:
        split: name of the split.
        record: its position in the split.
        image: its identity, see :mod:`podline.data.identity`; in a published data set that of its pixels.
        file: its name in the source; empty if it is unknown.
        label: its class.
        suggested: the class with the highest probability, or the class of the image that it repeats.
        believed: the models' probability of its label.
        wrong: the probability that its label is wrong.
        repeats: the near-duplicate with another label, as ``train[3]``, or empty.
    """

    split: str
    record: int
    image: str
    label: str
    suggested: str
    believed: float
    wrong: float
    repeats: str = ""
    file: str = Field(default="", exclude_if=operator.not_)

    def words(self) -> str:
        """Return its place, its label and the reason for the doubt."""
        why = f"nearly repeats {self.repeats}" if self.repeats else f"wrong with {100 * self.wrong:.0f} %"
        where = f"{self.split}[{self.record}]{f' ({self.file})' if self.file else ''}"
        return f"{where} is {self.label}; {self.suggested}? {why}"


class SplitSuspects(Frozen):
    """The suspects of a split.

    Attributes:
        split: name of the split.
        examples: number of its records.
        expected: estimated number of wrong labels in the whole split.
        precision: share of wrong labels among the suspects; None without expected ones.
        suspects: suspects, most likely first.
        pairs: near-duplicates with other labels, which no estimate covers.
    """

    split: str
    examples: int
    expected: Metric
    precision: Metric | None
    suspects: tuple[Suspect, ...]
    pairs: tuple[Suspect, ...]

    def sentence(self) -> str:
        """Return the estimate for a person."""
        pairs = f"; {len(self.pairs):,} near-duplicates with other labels" if self.pairs else ""
        if self.precision is None:
            return f"{self.split}: none expected among {self.examples:,} labels{pairs}"
        value, low, high = (
            round(100 * each) for each in (self.precision.value, self.precision.low, self.precision.high)
        )
        return f"{self.split}: {len(self.suspects):,} suspects; about {value} % [{low}, {high}] are wrong{pairs}"


class SuspectsDocument(Frozen):
    """A search for doubtful labels in a data set.

    Attributes:
        dataset: name of the data set.
        fingerprint: fingerprint of the data set.
        class_names: names by class number.
        runs: the trainings of the models, each without a part of the training split.
        splits: the results by split.
    """

    dataset: str
    fingerprint: str
    class_names: tuple[str, ...]
    runs: tuple[str, ...]
    splits: tuple[SplitSuspects, ...]

    @property
    def suspects(self) -> list[Suspect]:
        """Return all pairs and suspects of all splits, each record once; a record in a pair has what it repeats."""
        found = dict[tuple[str, int], Suspect]()
        for each in (each for part in self.splits for each in (*part.pairs, *part.suspects)):
            found.setdefault((each.split, each.record), each)
        return list(found.values())


def newest_suspects(store: Store, dataset: str) -> tuple[str, SuspectsDocument]:
    """Return the folder and the record of the newest search in a data set.

    Raises:
        StoreError: there is no record.
        ArtifactError: the record is damaged.
    """
    found = [file for file in store.listing(f"{FOLDER}/{dataset}") if file.name.split("/")[3:] == [DOCUMENT]]
    if not found:
        raise StoreError(f"{store.uri} has no suspects of {dataset}; `podline data suspects {dataset}` finds some")
    name = max(found, key=lambda file: file.published).name
    remedy = f"delete it and run `podline data suspects {dataset}` again"
    document = read_model(store, name, SuspectsDocument, "a record of suspects", remedy)
    return name.removesuffix(f"/{DOCUMENT}"), document
