"""The suspects stage: models check labels that they were not trained on; swapped labels measure the quality."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.progress import Reporter
from podline.data.order import part_of
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE, LABEL
from podline.data.versions.record_names import RecordNames, identities
from podline.documents.manifest import TRAINING, Manifest, read_manifest
from podline.documents.suspects import DOCUMENT, PAGE, SplitSuspects, Suspect, SuspectsDocument
from podline.evaluation.forward import News, answers_of, finished_model
from podline.input.pipeline import EvaluationInput
from podline.search.suspects.page import page
from podline.search.suspects.pairs import LabelPair, label_pairs
from podline.search.suspects.precision import AssessedLabels, judged
from podline.stages.completed import complete
from podline.stages.suspects import SuspectsResult, SuspectsSpec
from podline.store.opening import open_store
from podline.training.run import configure_process

_FIRST = 10  # suspects that the command lists


def find_suspects(spec: SuspectsSpec, reporter: Reporter) -> SuspectsResult:
    """Find the labels of every split that are probably wrong, by models that were not trained on them.

    A training record is checked by the one model that left it out; other splits are checked by the mean of all models.

    Raises:
        StoreError: a run is missing.
        ArtifactError: weights or data have changed.
    """
    started, store = time.monotonic(), open_store(spec.root)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    strategy = configure_process(spec.recipe, spec.strategy)
    with strategy.scope():
        models = [finished_model(store, run) for run in spec.runs]
    readers = {split.name: open_split(store, spec.dataset_folder, manifest, split.name) for split in manifest.splits}
    believed = _believed(spec, manifest, models, strategy, readers, reporter)
    labels = {name: _all(reader, LABEL) for name, reader in readers.items()}
    pairs = label_pairs(readers, labels)
    names = manifest.class_names
    splits = []
    for name, reader in readers.items():
        found = judged(labels[name], believed[name], spec.precision)
        own = [pair for pair in pairs if pair.split == name]
        chosen = [*found.suspects.tolist(), *(pair.record for pair in own)]
        files = dict(zip(chosen, RecordNames(store, manifest).facts(name, chosen).names, strict=True))
        images = dict(zip(chosen, identities(store, manifest, name, chosen), strict=True))
        records = _SplitRecords(name, labels[name], believed[name], found, names, files, images)
        splits.append(
            SplitSuspects(
                split=name,
                examples=len(reader),
                expected=found.expected,
                precision=found.precision,
                suspects=tuple(records.suspect(record) for record in found.suspects.tolist()),
                pairs=tuple(records.repeated(pair) for pair in own),
            )
        )
        reader.require_unchanged()
    document = SuspectsDocument(
        dataset=manifest.dataset,
        fingerprint=spec.fingerprint,
        class_names=names,
        runs=spec.runs,
        splits=tuple(splits),
    )
    files = [f"{spec.folder}/{name}" for name in (DOCUMENT, PAGE)]
    store.publish_json(files[0], document.model_dump(mode="json"), replace=True)
    store.publish_bytes(files[1], page(document, readers).encode(), replace=True)
    suspects = document.suspects
    result = SuspectsResult(
        seconds=time.monotonic() - started,
        folder=spec.folder,
        page=files[1],
        suspects=len(suspects),
        sentences=tuple(split.sentence() for split in splits),
        first=tuple(each.words() for each in suspects[:_FIRST]),
    )
    complete(store, spec.folder, spec, result, files)
    return result


def _believed(
    spec: SuspectsSpec,
    manifest: Manifest,
    models: Sequence[keras.Model],
    strategy: tf.distribute.Strategy,
    readers: Mapping[str, SplitReader],
    reporter: Reporter,
) -> dict[str, npt.NDArray[np.float64]]:
    """Return split → predicted probability of each class for each record, float64 (n, classes)."""
    found = {name: np.zeros((len(reader), len(manifest.class_names))) for name, reader in readers.items()}
    others = sum(len(reader) for name, reader in readers.items() if name != TRAINING)
    news = News(reporter, len(readers[TRAINING]) + others * len(models))
    for number, model in enumerate(models):
        answers = answers_of(model, strategy, tf.nn.softmax)
        for name, reader in readers.items():
            out_of_fold = name == TRAINING
            ids = part_of(len(reader), number, len(models)) if out_of_fold else np.arange(len(reader))
            batches = EvaluationInput(reader, manifest, (IMAGE,), batch_size=spec.recipe.evaluation_batch_size, ids=ids)
            first = 0
            with batches.explained():
                for some, _ in answers(batches):
                    mine = ids[first : first + len(some)]
                    found[name][mine] += some / (1 if out_of_fold else len(models))
                    first += len(some)
                    news.done(len(some))
    return found


class _SplitRecords(NamedTuple):
    """The records of a split, with the labels and facts from which suspects are described."""

    split: str
    labels: npt.NDArray[np.int64]
    believed: npt.NDArray[np.float64]
    found: AssessedLabels
    names: Sequence[str]
    files: Mapping[int, str]
    images: Mapping[int, str]

    def suspect(self, record: int) -> Suspect:
        """Describe a record whose label the models doubt."""
        label = int(self.labels[record])
        others = np.delete(np.arange(len(self.names)), label)
        suggested = int(others[self.believed[record, others].argmax()])
        return Suspect(
            split=self.split,
            record=record,
            image=self.images[record],
            label=self.names[label],
            suggested=self.names[suggested],
            believed=float(self.believed[record, label]),
            wrong=float(self.found.wrong[record]),
            file=self.files[record],
        )

    def repeated(self, pair: LabelPair) -> Suspect:
        """Describe a record that nearly repeats a record with another label."""
        changes = {"suggested": self.names[pair.other_label], "repeats": f"{pair.other_split}[{pair.other}]"}
        return self.suspect(pair.record).model_copy(update=changes)


def _all(reader: SplitReader, field: str) -> npt.NDArray[np.int64]:
    return reader.gather(np.arange(len(reader)), (field,))[field]
