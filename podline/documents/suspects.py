"""``suspects/<dataset>/<digest>/suspects.json``: the result of a search for wrong labels, next to an HTML page."""

from __future__ import annotations

from podline.base.errors import StoreError
from podline.base.frozen import Frozen, omitted
from podline.base.plurals import plural
from podline.documents.metric import Metric
from podline.documents.reading import read_model
from podline.store.contract import Store

FOLDER, DOCUMENT, PAGE = "suspects", "suspects.json", "suspects.html"


class Suspect(Frozen):
    """A record whose label may be wrong.

    Attributes:
        split: name of the split.
        record: index of the record in the split.
        image: the image's identity, see :mod:`podline.data.identity`; in a published data set, the hash of its pixels.
        file: the image's name in the source; empty if unknown.
        label: the class in the data set.
        suggested: the other class with the highest probability, or the class of the near-duplicate.
        believed: the probability of ``label`` by the model that left the record out, or by the mean of all models.
        wrong: the probability that ``label`` is wrong.
        repeats: the near-duplicate with another label, such as ``train[3]``, or empty.
    """

    split: str
    record: int
    image: str
    label: str
    suggested: str
    believed: float
    wrong: float
    repeats: str = ""
    file: str = omitted("")

    def words(self) -> str:
        """Return as text the record, its label, the suggested class, and why the label may be wrong."""
        why = f"nearly repeats {self.repeats}" if self.repeats else f"wrong with probability {100 * self.wrong:.0f} %"
        where = f"{self.split}[{self.record}]{f' ({self.file})' if self.file else ''}"
        return f"{where} is labelled {self.label}, suggested {self.suggested}: {why}"


class SplitSuspects(Frozen):
    """The suspects of a split.

    Attributes:
        split: name of the split.
        examples: number of records in the split.
        expected: estimated number of wrong labels in the whole split.
        precision: estimated share of wrong labels among the suspects; None without suspects.
        suspects: suspects, the most doubtful first; empty if too few labels are expected to be wrong.
        pairs: near-duplicates with different labels, which may be suspects too.
    """

    split: str
    examples: int
    expected: Metric
    precision: Metric | None
    suspects: tuple[Suspect, ...]
    pairs: tuple[Suspect, ...]

    def sentence(self) -> str:
        """Return the estimate as text."""
        pairs = f"; {len(self.pairs):,} near-duplicates with different labels" if self.pairs else ""
        if self.precision is None:
            return f"{self.split}: no suspects among {plural(self.examples, 'label')}{pairs}"
        value, low, high = (
            round(100 * each) for each in (self.precision.value, self.precision.low, self.precision.high)
        )
        return (
            f"{self.split}: {plural(len(self.suspects), 'suspect')}; about {value} % [{low}, {high}] are wrong{pairs}"
        )


class SuspectsDocument(Frozen):
    """The result of a search for wrong labels in a data set.

    Attributes:
        dataset: name of the data set.
        fingerprint: fingerprint of the data set.
        class_names: name of class 0, class 1, …
        runs: the trainings of the models; each training omitted a fold of the training split.
        splits: the result for each split.
    """

    dataset: str
    fingerprint: str
    class_names: tuple[str, ...]
    runs: tuple[str, ...]
    splits: tuple[SplitSuspects, ...]

    @property
    def suspects(self) -> list[Suspect]:
        """Return the pairs and suspects of all splits, each record once; a record in ``pairs`` keeps ``repeats``."""
        found = dict[tuple[str, int], Suspect]()
        for each in (each for part in self.splits for each in (*part.pairs, *part.suspects)):
            found.setdefault((each.split, each.record), each)
        return list(found.values())


def newest_suspects(store: Store, dataset: str) -> tuple[str, SuspectsDocument]:
    """Return the folder and the document of the newest search in a data set.

    Raises:
        StoreError: the data set was never searched, or the document cannot be read.
        ArtifactError: the document is damaged.
    """
    found = [file for file in store.listing(f"{FOLDER}/{dataset}") if file.name.split("/")[3:] == [DOCUMENT]]
    if not found:
        raise StoreError(
            f"{store.uri} has no search for wrong labels in {dataset}; run `podline data suspects {dataset}`"
        )
    name = max(found, key=lambda file: file.published).name
    remedy = f"delete it and run `podline data suspects {dataset}` again"
    document = read_model(store, name, SuspectsDocument, "a search for wrong labels", remedy)
    return name.removesuffix(f"/{DOCUMENT}"), document
