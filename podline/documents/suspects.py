"""The record of a pass over a data set's labels, ``suspects/<dataset>/<digest>/suspects.json``, beside its page."""

from __future__ import annotations

import operator

from pydantic import Field, ValidationError

from podline.errors import ArtifactError, StoreError
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER, DOCUMENT, PAGE = "suspects", "suspects.json", "suspects.html"


class Interval(Frozen):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


class Suspect(Frozen):
    """A record whose label is in doubt.

    Attributes:
        split: of the data set.
        record: its position there.
        image: the sha256 of its pixels.
        file: its name in the source; empty where the machine that looked for suspects did not convert it.
        label: its class.
        suggested: the class that the models believe in most, or that of the image that it repeats.
        believed: the probability that the models give its label.
        wrong: the probability that its label is wrong.
        repeats: the near-duplicate with another label, as ``train[3]``; empty where there is none.
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
        """Return which record it is, what it is called, and why that is in doubt."""
        why = f"nearly repeats {self.repeats}" if self.repeats else f"wrong with {100 * self.wrong:.0f} %"
        where = f"{self.split}[{self.record}]{f' ({self.file})' if self.file else ''}"
        return f"{where} is {self.label}; {self.suggested}? {why}"


class SplitSuspects(Frozen):
    """The suspects of a split.

    Attributes:
        split: its name.
        examples: how many records it has.
        expected: the number of wrong labels in the whole split.
        precision: the share of wrong labels among the suspects; None where none are expected.
        suspects: the likeliest first.
        pairs: near-duplicates with other labels, which no estimate covers.
    """

    split: str
    examples: int
    expected: Interval
    precision: Interval | None
    suspects: tuple[Suspect, ...]
    pairs: tuple[Suspect, ...]

    def sentence(self) -> str:
        """Return what a person is to expect."""
        pairs = f"; {len(self.pairs):,} near-duplicates with other labels" if self.pairs else ""
        if self.precision is None:
            return f"{self.split}: none expected among {self.examples:,} labels{pairs}"
        value, low, high = (
            round(100 * each) for each in (self.precision.value, self.precision.low, self.precision.high)
        )
        return f"{self.split}: {len(self.suspects):,} suspects; about {value} % [{low}, {high}] are wrong{pairs}"


class SuspectsDocument(Frozen):
    """A pass over a data set's labels.

    Attributes:
        dataset: its name.
        fingerprint: its fingerprint.
        class_names: in the order of their numbers.
        runs: the trainings whose models were asked, each without a part of the training split.
        splits: what was found.
    """

    dataset: str
    fingerprint: str
    class_names: tuple[str, ...]
    runs: tuple[str, ...]
    splits: tuple[SplitSuspects, ...]

    @property
    def suspects(self) -> list[Suspect]:
        """Return all suspects and pairs of all splits, each record once."""
        found = {(each.split, each.record): each for part in self.splits for each in (*part.pairs, *part.suspects)}
        return list(found.values())


def newest_suspects(store: Store, dataset: str) -> tuple[str, SuspectsDocument]:
    """Return the folder and the record of the newest pass over a data set.

    Raises:
        StoreError: there is none.
        ArtifactError: it is damaged.
    """
    found = [file for file in store.listing(f"{FOLDER}/{dataset}") if file.name.split("/")[3:] == [DOCUMENT]]
    if not found:
        raise StoreError(f"{store.uri} has no suspects of {dataset}; `podline data suspects {dataset}` finds some")
    name = max(found, key=lambda file: file.published).name
    try:
        return name.removesuffix(f"/{DOCUMENT}"), SuspectsDocument.model_validate(store.read_json(name))
    except ValidationError as error:
        raise ArtifactError(
            f"{store.where(name)} is not a record of suspects ({error.error_count()} problems); delete it and run "
            f"`podline data suspects {dataset}` again"
        ) from error
