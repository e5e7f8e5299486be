"""Pictures for a classifier's sheet: stored examples, and a run's answers for test images."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from podline.data.reader import SplitReader, open_split
from podline.documents.manifest import Manifest
from podline.drawing.picture_sheet import Block, Picture, PictureRow
from podline.figures import count, percent
from podline.kinds.classification.document import Guess
from podline.kinds.classification.judging import ask
from podline.progress import Reporter
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.training.plan import EVALUATION_SPLIT

RIGHT, WRONG = "#1a7f37", "#c0392b"
"""Colours of captions."""
_MISTAKE_ROWS = 2


def asked(
    spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
) -> tuple[Block, int, int]:
    """Return the first test examples with a run's answers, then its most confident mistakes; the number correct."""
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    judged = ask(model, tf.distribute.get_strategy(), reader, manifest, spec.recipe.evaluation_batch_size, reporter)
    figures = judged.figures()
    rows = [PictureRow("the first", _guesses(judged.first(spec.examples), reader, manifest))]
    mistakes = judged.mistakes(_MISTAKE_ROWS * spec.examples)
    for start in range(0, len(mistakes), spec.examples):
        label = "most confident\nmistakes" if start == 0 else ""
        rows.append(PictureRow(label, _guesses(mistakes[start : start + spec.examples], reader, manifest)))
    right = f"{count(figures.correct)} of {count(figures.examples)}"
    about = (
        f"test examples with its first guess and the probability of that guess; {right} are correct, "
        f"{percent(figures.correct / figures.examples)}"
    )
    return Block(f"Answers of {spec.run}", about, rows), figures.examples, figures.correct


def _guesses(guesses: Sequence[Guess], reader: SplitReader, manifest: Manifest) -> list[Picture]:
    right = [guess.prediction == guess.label for guess in guesses]
    return pictures_of(
        reader, [guess.record for guess in guesses], [_caption(guess, manifest) for guess in guesses], right
    )


def pictures_of(
    reader: SplitReader, records: Sequence[int], captions: Sequence[str], right: Sequence[bool]
) -> list[Picture]:
    """Return records as pictures; captions have the colour of correct or wrong answers."""
    images = reader.gather(np.array(records, np.int64), ("image",))["image"]
    colours = [RIGHT if each else WRONG for each in right]
    return [Picture(*each) for each in zip(images, captions, colours, strict=True)]


def _caption(guess: Guess, manifest: Manifest) -> str:
    said, confidence = manifest.class_names[guess.prediction], f"{100 * guess.confidence:.0f} %"
    if guess.prediction == guess.label:
        return f"✓ {said}, {confidence}"
    return f"✗ {said}, {confidence}\nis {manifest.class_names[guess.label]}"
