"""A picture sheet: a model's input before and after augmentation, and a run's answers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from podline.data.reader import SplitReader, open_split
from podline.documents.completion import completion_name
from podline.documents.evaluation import Guess
from podline.documents.manifest import Manifest, read_manifest
from podline.drawing.picture_sheet import LARGE, Block, Picture, PictureRow, Sheet, sheet
from podline.errors import StoreError
from podline.evaluation.classification import ClassificationTally
from podline.evaluation.evaluate import logits_of, tally
from podline.evaluation.pose_sheet import pose_blocks
from podline.figures import count, percent
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.inventory.catalogue import run_of
from podline.progress import Reporter
from podline.recipes.settings import AugmentationSettings
from podline.stages.completed import manifest_sha256
from podline.stages.table import TRAIN
from podline.stages.tools import ShowResult, ShowSpec
from podline.store.contract import Store, explained
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, plan_training

# What a picture needs.
_FIELDS = ("image", "label")
_RIGHT, _WRONG = "#1a7f37", "#c0392b"
_MISTAKE_ROWS = 2


def run(spec: ShowSpec, reporter: Reporter) -> ShowResult:
    """Draws the sheet into ``spec.out``.

    Raises:
        StoreError: there is no such data set or no such finished run, or the file cannot be written.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set or the weights are not what they were.
    """
    started = time.monotonic()
    figure, judged = drawn(spec, reporter)
    _save(figure, Path(spec.out))
    figures = judged.figures() if judged else None
    return ShowResult(
        seconds=time.monotonic() - started,
        png=spec.out,
        examples=figures.examples if figures else 0,
        correct=figures.correct if figures else 0,
    )


def drawn(spec: ShowSpec, reporter: Reporter) -> tuple[Sheet, ClassificationTally | None]:
    """The sheet, and what the run makes of the test split if it names classes; ``spec.out`` is left alone."""
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    if spec.recipe.pose:
        return sheet(pose_blocks(spec, store, manifest, reporter), LARGE), None
    judged = _judged(spec, store, manifest, reporter) if spec.run else None
    blocks = [_fed(spec, store, manifest)]
    if judged:
        blocks.append(_made_of_it(spec, store, manifest, judged))
    return sheet(blocks), judged


def _fed(spec: ShowSpec, store: Store, manifest: Manifest) -> Block:
    """The first examples of the first batch, as stored and as each of the first epochs augments them."""
    plan = plan_training(spec.recipe.at_first, manifest)
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


def _save(figure: Figure, file: Path) -> None:
    """Writes a PNG whole: whoever looks at the file never sees half of it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with explained("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(temporary, format="png")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
