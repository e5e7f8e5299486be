"""Pictures for the sheet with their labels: stored examples, and a run's answers for test images."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from podline.data.reader import SplitReader, open_split
from podline.documents.manifest import Manifest
from podline.drawing.picture_sheet import Block, Picture, PictureRow
from podline.figures import count, percent
from podline.inventory.catalogue import training_of
from podline.kinds.classification.sheet import pictures_of
from podline.kinds.labels.judging import scores_of
from podline.kinds.labels.records import words_of
from podline.kinds.labels.scores import Scores
from podline.progress import Reporter
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.training.plan import EVALUATION_SPLIT


def asked(
    spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
) -> tuple[Block, int, int]:
    """Return the first test examples with the labels that a run predicts, then its most confident mistakes."""
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    scores = scores_of(model, store, training_of(store, spec.run), reader, manifest, reporter)
    worst = scores.surest_mistakes()[: spec.examples, 0]
    rows = [
        PictureRow("the first", _pictures(scores, np.arange(spec.examples), reader, manifest.class_names)),
        PictureRow("most confident\nmistakes", _pictures(scores, worst, reader, manifest.class_names)),
    ]
    examples, right = len(scores.right), int(scores.right.sum())
    about = (
        f"test examples with the predicted labels; {count(right)} of {count(examples)} have exactly the right "
        f"labels, {percent(right / examples)}"
    )
    return Block(f"Answers of {spec.run}", about, rows), examples, right


def _pictures(
    scores: Scores, records: npt.NDArray[np.int64], reader: SplitReader, names: Sequence[str]
) -> list[Picture]:
    shown: list[int] = records[records < len(scores.labels)].tolist()
    return pictures_of(
        reader, shown, [_caption(scores, record, names) for record in shown], scores.right[shown].tolist()
    )


def _caption(scores: Scores, record: int, names: Sequence[str]) -> str:
    said = words_of(scores.named[record], names)
    if scores.right[record]:
        return f"✓ {said}"
    return f"✗ {said}\nis {words_of(scores.labels[record], names)}"
