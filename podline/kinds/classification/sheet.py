"""A picture sheet of classes: a classifier's input, and what a run makes of test images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from podline.data.reader import SplitReader, open_split
from podline.documents.completion import completion_name
from podline.documents.evaluation import Guess
from podline.documents.manifest import Manifest
from podline.drawing.picture_sheet import Block, Picture, PictureRow, Sheet, sheet
from podline.errors import StoreError
from podline.figures import count, percent
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.inventory.catalogue import run_of
from podline.kinds.classification.judging import logits_of, tally
from podline.kinds.classification.tally import ClassificationTally
from podline.progress import Reporter
from podline.recipes.settings import AugmentationSettings
from podline.stages.table import TRAIN
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.training.export import load_model
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, plan_training

# What a picture needs.
_FIELDS = ("image", "label")
_RIGHT, _WRONG = "#1a7f37", "#c0392b"
_MISTAKE_ROWS = 2


def class_sheet(spec: ShowSpec, store: Store, manifest: Manifest, reporter: Reporter) -> tuple[Sheet, int, int]:
    """Return what a classifier is fed and, if the spec names a run, what that makes of the test split.

    Raises:
        StoreError: there is no such finished run.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set or the weights are not what they were.
    """
    fed = _fed(spec, store, manifest)
    if not spec.run:
        return sheet([fed]), 0, 0
    judged = _judged(spec, store, manifest, reporter)
    figures = judged.figures()
    return sheet([fed, _made_of_it(spec, store, manifest, judged)]), figures.examples, figures.correct


def _fed(spec: ShowSpec, store: Store, manifest: Manifest) -> Block:
    """The first examples of the first batch, as stored and as each of the first epochs augments them."""
    plan = plan_training(spec.recipe, manifest)
    reader = open_split(store, spec.dataset_folder, manifest, TRAINING_SPLIT)
    augmentation = spec.recipe.augmentation
    source = TrainingInput(reader, manifest, _FIELDS, order=plan.order, augmentation=augmentation)
    _, ids, stored = source.read(0)
    ids = ids[: spec.examples]
    stored = {name: values[: spec.examples] for name, values in stored.items()}
    names = [manifest.class_names[label] for label in stored["label"]]
    rows = [PictureRow("as stored", [Picture(*pair) for pair in zip(stored["image"], names, strict=True)])]
    if augmentation == AugmentationSettings():
        about = f"examples of the training split of {manifest.dataset}; the recipe has no augmentation: fed as stored"
    else:
        about = f"examples of the training split of {manifest.dataset}; below, each as the first epochs augment it"
        for epoch in range(spec.epochs):
            images = source.augmented(epoch, ids, stored)["image"]
            rows.append(PictureRow(f"epoch {epoch + 1}", [Picture(image) for image in images]))
    return Block(f"What the model of {spec.recipe.name} is fed", about, rows)


def _judged(spec: ShowSpec, store: Store, manifest: Manifest, reporter: Reporter) -> ClassificationTally:
    if not store.exists(completion_name(f"runs/{spec.run}", TRAIN.name)):
        raise StoreError(f"{store.uri}: run {spec.run} is not finished; `podline train` goes on with it")
    finished = run_of(store, spec.run).stages[TRAIN.name]
    model = load_model(store, f"runs/{spec.run}", finished.result["weights_sha256"])
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    batches = EvaluationInput(reader, manifest, _FIELDS, batch_size=spec.recipe.evaluation_batch_size)
    done = 0

    def news(examples: int) -> None:
        nonlocal done
        done += examples
        reporter.progress(done, batches.count, "examples")

    return tally(logits_of(model, tf.distribute.get_strategy()), batches, len(manifest.class_names), news)


def _made_of_it(spec: ShowSpec, store: Store, manifest: Manifest, judged: ClassificationTally) -> Block:
    """The first examples of the test split with the run's guesses, then its most confident mistakes."""
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    figures = judged.figures()
    rows = [PictureRow("the first", _guesses(judged.first(spec.examples), reader, manifest))]
    mistakes = judged.mistakes(_MISTAKE_ROWS * spec.examples)
    for start in range(0, len(mistakes), spec.examples):
        label = "most confident\nmistakes" if start == 0 else ""
        rows.append(PictureRow(label, _guesses(mistakes[start : start + spec.examples], reader, manifest)))
    right = f"{count(figures.correct)} of {count(figures.examples)}"
    about = (
        f"test examples with its first guess and the probability that it gives it; it gets {right} right, "
        f"{percent(figures.correct / figures.examples)}"
    )
    return Block(f"What {spec.run} makes of it", about, rows)


def _guesses(guesses: Sequence[Guess], reader: SplitReader, manifest: Manifest) -> list[Picture]:
    images = reader.gather(np.array([guess.record for guess in guesses], np.int64), ("image",))["image"]
    return [
        Picture(image, _caption(guess, manifest), _RIGHT if guess.prediction == guess.label else _WRONG)
        for image, guess in zip(images, guesses, strict=True)
    ]


def _caption(guess: Guess, manifest: Manifest) -> str:
    said, confidence = manifest.class_names[guess.prediction], f"{100 * guess.confidence:.0f} %"
    if guess.prediction == guess.label:
        return f"✓ {said}, {confidence}"
    return f"✗ {said}, {confidence}\nis {manifest.class_names[guess.label]}"
