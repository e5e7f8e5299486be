"""Exports a promoted model (SavedModel, TFLite) and checks each form's answers on test images.

``model/model.keras`` is there since training. The SavedModel (``model/saved_model/``) and, if the rules ask for it, the
TensorFlow Lite file (``model/model.tflite``) are made here, published, and read back from the store before they are
asked.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.documents.promotion import SAVED_MODEL, TFLITE, ExportedFile
from podline.store.contract import Store, explained
from podline.training.export import KERAS

IMAGES = 100

# The same sums in another order: some 1e-6 of an answer for each layer. TensorFlow Lite has kernels of its own.
_TOLERANCE, _TOLERANCE_LITE = 1e-4, 1e-3
_BATCH, _TIMED = 10, 20

Images = npt.NDArray[np.uint8]
Answers = list[npt.NDArray[np.float32]]


def checked_exports(store: Store, folder: str, model: keras.Model, images: Images, *, lite: bool) -> list[ExportedFile]:
    """Publish the missing export formats, and check the answers of each.

    Args:
        store: the store.
        folder: the run's.
        model: the model that was judged.
        images: of the test split, (n, height, width, channels).
        lite: whether a TensorFlow Lite file is wanted.

    Raises:
        StoreError: something cannot be written.
    """
    expected = in_batches(lambda batch: flat(model(batch, training=False)), images)
    ways: dict[Literal["keras", "savedmodel", "tflite"], tuple[str, Callable[[str], Callable[[Images], Answers]]]] = {
        "keras": (KERAS, lambda name: _keras(store, name)),
        "savedmodel": (SAVED_MODEL, lambda name: _saved_model(store, name, model)),
    }
    if lite:
        ways["tflite"] = (TFLITE, lambda name: _lite(store, name, model))
    found = []
    for form, (place, opened) in ways.items():
        name = f"{folder}/{place}"
        tolerance = _TOLERANCE_LITE if form == "tflite" else _TOLERANCE
        allowed = tolerance * max(1.0, *(float(np.abs(answer).max()) for answer in expected))
        difference, problem = None, ""
        try:
            difference = largest(expected, in_batches(opened(name), images))
        except Exception as error:
            # Whatever a library says of a file that it cannot read or run: it must not be handed on.
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        found.append(
            ExportedFile(
                form=form, name=name, images=len(images), difference=difference, allowed=allowed, problem=problem
            )
        )
    return found


def milliseconds(model: keras.Model, images: Images) -> float:
    """Return the CPU time of one image on this machine: the median of several, after the first."""
    with tf.device("CPU:0"):
        answer = tf.function(lambda batch: model(batch, training=False), autograph=False)
        answer(images[:1])
        took = []
        for _ in range(_TIMED):
            started = time.perf_counter()
            tf.nest.map_structure(np.asarray, answer(images[:1]))
            took.append(1000 * (time.perf_counter() - started))
    return median(took)


def _keras(store: Store, name: str) -> Callable[[Images], Answers]:
    with store.workspace("keras") as folder:
        # Keras goes by the ending of the name, which a copy of an object in the cache does not have.
        copy = folder / "model.keras"
        with explained("write", copy):
            shutil.copyfile(store.local(name), copy)
        published: Any = keras.models.load_model(copy, compile=False)
    return lambda batch: flat(published(batch, training=False))


def _saved_model(store: Store, name: str, model: keras.Model) -> Callable[[Images], Answers]:
    with store.workspace("saved_model") as folder:
        _export(model, folder / "made")
        for file in sorted(path for path in (folder / "made").rglob("*") if path.is_file()):
            store.publish_file(file, f"{name}/{file.relative_to(folder / 'made').as_posix()}", replace=True)
        back = folder / "back"
        for found in store.listing(name):
            target = back / found.name.removeprefix(f"{name}/")
            with explained("write", target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(store.read_bytes(found.name))
        loaded: Any = tf.saved_model.load(str(back))
    return lambda batch: flat(loaded.serve(tf.constant(batch)))


def _export(model: keras.Model, folder: Path) -> None:
    """Export a SavedModel with the signature ``serve``: any number of uint8 images in, the model's outputs out."""
    archive: Any = keras.export.ExportArchive()
    archive.track(model)
    shape = tuple(model.input_shape[1:])
    archive.add_endpoint(
        "serve",
        lambda images: model(images, training=False),
        input_signature=[tf.TensorSpec((None, *shape), tf.uint8)],
    )
    archive.write_out(str(folder), verbose=False)


def _lite(store: Store, name: str, model: keras.Model) -> Callable[[Images], Answers]:
    store.publish_bytes(name, lite_file(store, model), replace=True)
    return lite_model(store.read_bytes(name))


def lite_file(store: Store, model: keras.Model, calibrating: Images | None = None) -> bytes:
    """Return a TensorFlow Lite file of a model: uint8 images in, float32 out.

    Args:
        store: has room for temporary files.
        model: which.
        calibrating: images, (n, height, width, channels), whose activations give the ranges of 8-bit integers, in which
            the layers then compute; without them, in float32.
    """
    with store.workspace("lite") as folder, _no_word_of_litert():
        _export(model, folder / "made")
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "made"), signature_keys=["serve"])
        if calibrating is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ({"images": image[None]} for image in calibrating)
            # An operation without a kernel for integers computes in float32.
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS]
        return converter.convert()


def lite_model(data: bytes) -> Callable[[Images], Answers]:
    """Return a TensorFlow Lite file as a function of images."""
    with _no_word_of_litert():
        interpreter = tf.lite.Interpreter(model_content=data)
    serve = interpreter.get_signature_runner("serve")
    return lambda batch: flat(serve(images=batch))


@contextlib.contextmanager
def _no_word_of_litert() -> Iterator[None]:
    with warnings.catch_warnings():
        # It is to live on as LiteRT, a package of its own; the file is the same.
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        yield


def in_batches(answer: Callable[[Images], Answers], images: Images) -> Answers:
    """Call a function on a few images at a time: a pose network's outputs for many images are large."""
    parts = [answer(images[start : start + _BATCH]) for start in range(0, len(images), _BATCH)]
    return [np.concatenate([part[place] for part in parts]) for place in range(len(parts[0]))]


def flat(answer: Any) -> Answers:
    """Flatten a classifier's one output, or a pose network's outputs of all stages, in the order of their names."""
    if isinstance(answer, Mapping):
        return [np.asarray(answer[name]) for name in sorted(answer)]
    return [np.asarray(each) for each in keras.tree.flatten(answer)]


def largest(expected: Answers, found: Answers) -> float:
    """Return the largest difference between two outputs.

    Raises:
        ValueError: they have different shapes.
    """
    if [answer.shape for answer in expected] != [answer.shape for answer in found]:
        raise ValueError(f"answers of shapes {[answer.shape for answer in found]}")
    return max(float(np.max(np.abs(one - other))) for one, other in zip(expected, found, strict=True))
