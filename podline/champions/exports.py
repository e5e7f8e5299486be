"""Exports a model before its promotion, and compares the outputs of each exported file on test images.

The training stage wrote ``model/model.keras``. This module writes the SavedModel (``model/saved_model/``) and, if the
rules ask for it, the TensorFlow Lite file (``model/model.tflite``). Except in a dry run, it publishes both, and reads
them back from the store. It compares the outputs of all three with the model's.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Pixels
from podline.base.errors import StoreError, TransientError
from podline.documents.promotion import SAVED_MODEL, TFLITE, ExportedFile
from podline.store.contract import Store, explained
from podline.training.export import KERAS, Outputs

IMAGES = 100

# Allowed differences relative to the largest output. A different order of additions changes an output by about 1e-6
# per layer. TensorFlow Lite has its own kernels.
_TOLERANCE, _TOLERANCE_LITE = 1e-4, 1e-3
_BATCH = 10


def checked_exports(
    store: Store, folder: str, model: keras.Model, images: Pixels, *, lite: bool, dry_run: bool = False
) -> list[ExportedFile]:
    """Export and publish a model as SavedModel and, if ``lite``, as TFLite; compare the outputs of every file.

    ``folder`` is the run's folder; ``images`` are images of the test split, uint8 (n, height, width, channels). With
    ``dry_run``, the exported files are not published.

    Raises:
        StoreError: a file cannot be read or written.
    """
    expected = in_batches(lambda batch: flat(model(batch, training=False)), images)
    ways: dict[Literal["keras", "savedmodel", "tflite"], tuple[str, Callable[[str], Callable[[Pixels], Outputs]]]] = {
        "keras": (KERAS, lambda name: _keras(store, name)),
        "savedmodel": (SAVED_MODEL, lambda name: _saved_model(store, name, model, dry_run=dry_run)),
    }
    if lite:
        ways["tflite"] = (TFLITE, lambda name: _lite(store, name, model, dry_run=dry_run))
    found = []
    for form, (place, opened) in ways.items():
        name = f"{folder}/{place}"
        tolerance = _TOLERANCE_LITE if form == "tflite" else _TOLERANCE
        allowed = tolerance * max(1.0, *(float(np.abs(answer).max()) for answer in expected))
        difference, problem = None, ""
        try:
            found_difference = largest(expected, in_batches(opened(name), images))
            difference = found_difference if math.isfinite(found_difference) else None
            problem = "" if difference is not None else "some outputs are NaN or infinite"
        except (StoreError, TransientError):
            raise
        except Exception as error:
            # A file that a library cannot read or run must not be used, whatever the error.
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        found.append(
            ExportedFile(
                form=form, name=name, images=len(images), difference=difference, allowed=allowed, problem=problem
            )
        )
    return found


def _keras(store: Store, name: str) -> Callable[[Pixels], Outputs]:
    with store.workspace("keras") as folder:
        # Keras needs the suffix .keras, which the cached file does not have.
        copy = folder / "model.keras"
        with explained("write", copy):
            shutil.copyfile(store.local(name), copy)
        published: Any = keras.models.load_model(copy, compile=False)
    return lambda batch: flat(published(batch, training=False))


def _saved_model(store: Store, name: str, model: keras.Model, *, dry_run: bool) -> Callable[[Pixels], Outputs]:
    with store.workspace("saved_model") as folder:
        write_saved_model(model, folder / "made")
        if dry_run:
            return saved_model(folder / "made")
        for file in sorted(path for path in (folder / "made").rglob("*") if path.is_file()):
            store.publish_file(file, f"{name}/{file.relative_to(folder / 'made').as_posix()}", replace=True)
        back = folder / "back"
        for found in store.listing(name):
            target = back / found.name.removeprefix(f"{name}/")
            with explained("write", target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(store.read_bytes(found.name))
        return saved_model(back)


def saved_model(folder: Path) -> Callable[[Pixels], Outputs]:
    """Load a SavedModel; return a function from images, uint8 (n, height, width, channels), to a list of outputs."""
    loaded: Any = tf.saved_model.load(str(folder))
    return lambda batch: flat(loaded.serve(tf.constant(batch)))


def write_saved_model(model: keras.Model, folder: Path) -> None:
    """Export a SavedModel with the signature ``serve``: uint8 (n, height, width, channels) → the model's outputs."""
    archive: Any = keras.export.ExportArchive()
    archive.track(model)
    shape = tuple(model.input_shape[1:])
    archive.add_endpoint(
        "serve",
        lambda images: model(images, training=False),
        input_signature=[tf.TensorSpec((None, *shape), tf.uint8)],
    )
    archive.write_out(str(folder), verbose=False)


def _lite(store: Store, name: str, model: keras.Model, *, dry_run: bool) -> Callable[[Pixels], Outputs]:
    data = lite_file(store, model)
    if dry_run:
        return lite_model(data)
    store.publish_bytes(name, data, replace=True)
    return lite_model(store.read_bytes(name))


def lite_file(store: Store, model: keras.Model, calibrating: Pixels | None = None) -> bytes:
    """Convert a model to a TensorFlow Lite file with uint8 images as input and float32 outputs; return its bytes.

    The activations of the images ``calibrating``, uint8 (n, height, width, channels), define the ranges of 8-bit
    integers; with None, layers compute in float32.
    """
    with store.workspace("lite") as folder, _without_litert_warning():
        write_saved_model(model, folder / "made")
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "made"), signature_keys=["serve"])
        if calibrating is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ({"images": image[None]} for image in calibrating)
            # An operation without an integer kernel computes in float32.
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS]
        return converter.convert()


def lite_model(data: bytes) -> Callable[[Pixels], Outputs]:
    """Load a TensorFlow Lite file; return a function from images, uint8 (n, height, width, channels), to outputs."""
    with _without_litert_warning():
        interpreter = tf.lite.Interpreter(model_content=data)
    serve = interpreter.get_signature_runner("serve")
    return lambda batch: flat(serve(images=batch))


@contextlib.contextmanager
def _without_litert_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        # The interpreter moves to the package LiteRT; the file format stays.
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        yield


def in_batches(answer: Callable[[Pixels], Outputs], images: Pixels) -> Outputs:
    """Call a function on batches of 10 images, to save memory; return its outputs for all n images, each (n, …)."""
    parts = [answer(images[start : start + _BATCH]) for start in range(0, len(images), _BATCH)]
    return [np.concatenate([part[place] for part in parts]) for place in range(len(parts[0]))]


def flat(answer: Any) -> Outputs:
    """Return a model's outputs as a list of arrays, those of a mapping in the order of their names."""
    # keras.tree sorts only plain dictionaries, but a SavedModel sorts the outputs of every mapping.
    answer = dict(answer) if isinstance(answer, Mapping) else answer
    return [np.asarray(each) for each in keras.tree.flatten(answer)]


def largest(expected: Outputs, found: Outputs) -> float:
    """Return the largest absolute difference between two lists of outputs; NaN if a difference is NaN.

    Raises:
        ValueError: the shapes differ.
    """
    if [answer.shape for answer in expected] != [answer.shape for answer in found]:
        raise ValueError(
            f"the outputs have shapes {[answer.shape for answer in found]}, expected "
            f"{[answer.shape for answer in expected]}"
        )
    # np.max, since max() may drop a NaN.
    return float(np.max([np.max(np.abs(one - other)) for one, other in zip(expected, found, strict=True)]))
