"""Compares the accuracy of the recipe ``images`` and of a plain Keras script on a user's images.

    python -m benchmarks.accuracy photos --side 64 --seeds 3 --work /tmp/accuracy

Both train the same network on the same number of images with the same pixels. The script mirrors and shifts images, and
uses AdamW with cosine decay, or Adam with a constant rate. The measure is the *macro accuracy*, the mean over classes,
on the source's test split. A row for RESULTS.md is printed for each way; the last column is the paired difference from
the best script.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline import notebook
from podline.base.frozen import Json
from podline.base.progress import silent
from podline.data.versions.examples import Examples
from podline.documents.intervals import mean_interval
from podline.documents.metric import Metric
from podline.kinds.classification.guesses import Guesses
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.options import TrainingGroup
from podline.stages.table import EVALUATE, TRAIN
from podline.store.opening import open_store
from podline.training.run import configure_process, initial_model

WAYS: dict[str, dict[str, Json]] = {
    "recipe `images`": {},
    '`class_weights="balanced"`': {"task.class_weights": "balanced"},
    '`sampling="balanced"`': {"task.sampling": "balanced"},
}


class Script(NamedTuple):
    """A plain Keras script: ``adam`` has a constant learning rate, ``adamw`` cosine decay."""

    optimizer: str
    rate: float
    batch_size: int


def train_keras(recipe: Recipe, train: Examples, images: int, script: Script) -> tuple[keras.Model, float]:
    """Train with ``keras.Model.fit``; return the model, and the training's seconds.

    Args:
        recipe: the recipe with the network and the seed.
        train: the examples of the training split.
        images: number of images over all epochs.
        script: the optimizer, learning rate and batch size.
    """
    network = initial_model(recipe, train.manifest, configure_process(recipe, "cpu"))
    pixels, steps = train[:], images // script.batch_size
    started = time.perf_counter()
    pairs = tf.data.Dataset.from_tensor_slices((pixels["image"], pixels["label"]))
    batches = pairs.shuffle(len(train), seed=recipe.seed).repeat().batch(script.batch_size).prefetch(tf.data.AUTOTUNE)
    augmented = keras.Sequential(
        [keras.layers.RandomFlip("horizontal"), keras.layers.RandomTranslation(0.1, 0.1, fill_mode="reflect")]
    )
    model = keras.Sequential([keras.Input(train.manifest.image_shape, dtype="uint8"), augmented, network])
    # Keras's annotations allow only numbers and names.
    rates: Any = keras.optimizers.schedules.CosineDecay(script.rate, steps)
    optimizer: Any = (
        keras.optimizers.AdamW(rates, weight_decay=0.01)
        if script.optimizer == "adamw"
        else keras.optimizers.Adam(script.rate)
    )
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    quietly: dict[str, Any] = {"verbose": 0}  # Keras's annotation allows only "auto"
    model.fit(batches, steps_per_epoch=steps, epochs=1, **quietly)
    return model, time.perf_counter() - started


def train_podline(recipe: Recipe, root: str, fingerprint: str) -> tuple[npt.NDArray[np.bool_], float, int]:
    """Train and evaluate a recipe.

    Returns:
        A mask of the right test answers, (n,); the training's seconds; the number of images over all epochs.
    """
    store, reporter = open_store(root), silent()
    spec = training_spec(store, recipe, fingerprint, "cpu")
    trained = TRAIN.find(spec, reporter) or TRAIN.run(spec, reporter)
    judging = evaluation_spec(spec, trained)
    if not EVALUATE.find(judging, reporter):
        EVALUATE.run(judging, reporter)
    return Guesses.read(store, trained.folder).right, trained.seconds, trained.examples


def macro(figures: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> Metric:
    """Return the mean over classes of a value per example (n,), with its 95 % interval."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=figures) / counts
    # The mean over classes is also the mean over examples of itself plus n times the example's influence.
    influences = (figures - means[places]) / counts[places] / len(counts)
    return mean_interval((means.mean() + len(labels) * influences).tolist())


Found = dict[str, list[tuple[npt.NDArray[np.bool_], float]]]
"""Way → for each seed: a mask of the right test answers, (n,), and the training's seconds."""


def measured(
    source: str, root: str, seeds: int, changes: dict[str, Json], scripts: list[Script]
) -> tuple[Found, npt.NDArray[np.int64]]:
    """Return the results of each way, and the labels of the test examples.

    Args:
        source: class folders with a test split.
        root: root of the store.
        seeds: number of trainings of each way.
        changes: values of the recipe to change.
        scripts: the plain Keras scripts.
    """
    data = notebook.convert(registry.override(registry.get("images"), changes), root, source)
    train, test = (Examples(root, data.folder, split) for split in ("train", "test"))
    asked, found = test[:], Found()
    for seed in range(seeds):
        recipe, seen = registry.override(registry.get(data.dataset), {**changes, "seed": seed}), 0
        for way, values in WAYS.items():
            right, seconds, seen = train_podline(registry.override(recipe, values), root, data.fingerprint)
            found.setdefault(way, []).append((right, seconds))
            _tell(way, seed, right, asked["label"], seconds)
        for script in scripts:
            way = f"Keras, {script.optimizer} {script.rate:g}, batches of {script.batch_size}"
            model, seconds = train_keras(recipe, train, seen, script)
            right = np.argmax(model(asked["image"], training=False), axis=1) == asked["label"]
            found.setdefault(way, []).append((right, seconds))
            _tell(way, seed, right, asked["label"], seconds)
    return found, asked["label"]


def _tell(way: str, seed: int, right: npt.NDArray[np.bool_], labels: npt.NDArray[np.int64], seconds: float) -> None:
    sys.stderr.write(f"{way}, seed {seed}: {100 * macro(right, labels).value:.1f} % in {seconds:.0f} s\n")


def rows(found: Found, labels: npt.NDArray[np.int64]) -> list[str]:
    """Return the table's rows, with differences from the best plain Keras script."""
    means = {way: np.mean([right for right, _ in trainings], axis=0) for way, trainings in found.items()}
    best = max((way for way in found if way not in WAYS), key=lambda way: macro(means[way], labels).value)
    lines = []
    for way, trainings in found.items():
        share, by = macro(means[way], labels), macro(means[way] - means[best], labels)
        seeds = [100 * macro(right, labels).value for right, _ in trainings]
        seconds = np.mean([seconds for _, seconds in trainings])
        change = "" if way == best else f"{100 * by.value:+.1f} [{100 * by.low:+.1f}, {100 * by.high:+.1f}]"
        lines.append(
            f"| {way} | {100 * share.value:.1f} % ± {50 * (share.high - share.low):.1f} | "
            f"{min(seeds):.1f} to {max(seeds):.1f} | {change} | {seconds:.0f} s |"
        )
    return lines


def _script(text: str) -> Script:
    optimizer, rate, batch_size = text.split(":")
    if optimizer not in ("adam", "adamw"):
        raise argparse.ArgumentTypeError(f"got {optimizer}, expected adam or adamw, for example adamw:0.003:32")
    return Script(optimizer, float(rate), int(batch_size))


def main() -> None:
    """Print the table's rows."""
    parser = argparse.ArgumentParser(description="Compare the accuracy of the recipe images and of plain Keras.")
    parser.add_argument("source", help="class folders with a test split")
    parser.add_argument("--work", type=Path, required=True, help="a folder for data sets and runs")
    parser.add_argument("--side", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings of each way")
    scripts = [Script("adam", 1e-3, 32), Script("adamw", 3e-3, 32)]
    parser.add_argument("--keras", type=_script, nargs="+", default=scripts, help="optimizer:learning rate:batch size")
    parser.add_argument("--set", nargs="*", default=[], help="values of the recipe, such as duration.epochs=60")
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    # Evaluations during training would cost time on one side only.
    given = TrainingGroup(assignments=tuple(args.set)).changes()
    changes = {"few": [], "conversion.side": args.side, "evaluate_every": None, **given}
    found, labels = measured(args.source, str(args.work / "root"), args.seeds, changes, args.keras)
    sys.stdout.write("\n".join(rows(found, labels)) + "\n")


if __name__ == "__main__":
    main()
