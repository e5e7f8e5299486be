"""The export stage: writes a run's model as SavedModel, ONNX or TensorFlow Lite, and evaluates the file.

The evaluation code of the kind of task evaluates the model and the exported file on the same test examples.
"""

from __future__ import annotations

import importlib
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Pixels
from podline.base.entry_points import reason, require_extra
from podline.base.errors import ArtifactError, StoreError, TransientError
from podline.base.progress import Reporter
from podline.champions.exports import (
    flat,
    in_batches,
    largest,
    lite_file,
    lite_model,
    saved_model,
    write_saved_model,
)
from podline.contract.answers import CommonExamples
from podline.contract.kind import kind_of
from podline.data.order import permutation
from podline.data.reader import open_split
from podline.data.records import IMAGE
from podline.documents.manifest import TRAINING, Manifest, read_manifest
from podline.ledger.inventory.catalogue import training_of
from podline.stages.base import JUDGED
from podline.stages.specs import TrainSpec
from podline.stages.tools import ExportResult, ExportSpec
from podline.store.contract import Store, explained
from podline.store.local_files import appearing
from podline.store.opening import open_store
from podline.training.export import Outputs, load_model

# Numbers of training examples whose activations define the ranges of 8-bit integers, and of compared test examples.
_CALIBRATING = 200
_COMPARED = 100


def export(spec: ExportSpec, reporter: Reporter) -> ExportResult:
    """Export a model, evaluate model and export on the first test examples, and write the result to ``FILE.json``.

    Raises:
        SettingsError: a package is missing.
        StoreError: the run or data set does not exist, or the file cannot be written.
        ArtifactError: the weights or the data have changed, or the model cannot be converted.
    """
    if spec.format == "onnx":
        require_extra("onnx", "--format onnx")
    started, store = time.monotonic(), open_store(spec.root)
    training = training_of(store, spec.run)
    manifest = read_manifest(store, training.dataset_folder)
    model = load_model(store, training.folder, spec.weights_sha256)
    reporter.log(f"making {spec.file} of {spec.run}")
    with store.workspace("export") as folder:
        made = folder / "made"
        try:
            run = _made(spec, store, training, manifest, model, made)
        except (StoreError, TransientError):
            raise
        except Exception as error:
            # Converters may raise anything for a model that they cannot convert.
            raise ArtifactError(
                f"{spec.run} cannot be exported as {spec.format}: {reason(error)}; give another --format"
            ) from error
        examples = CommonExamples(store, training.dataset_folder, manifest, JUDGED, reporter)
        result = _judged(spec, training, examples, model, run)
        files = [path for path in (made, *made.rglob("*")) if path.is_file()]
        result = result.changed(bytes=sum(path.stat().st_size for path in files), seconds=time.monotonic() - started)
        _publish(made, Path(spec.file), result)
    return result


def _publish(made: Path, file: Path, result: ExportResult) -> None:
    """Move the export to its final path atomically, and write the result to ``FILE.json``."""
    with appearing(file) as temporary:
        shutil.move(made, temporary)
    beside = file.with_name(f"{file.name}.json")
    with explained("write", beside):
        beside.write_text(result.model_dump_json(indent=2, exclude={"reused"}) + "\n")


def _judged(
    spec: ExportSpec,
    training: TrainSpec,
    whole: CommonExamples,
    model: keras.Model,
    run: Callable[[Pixels], Outputs],
) -> ExportResult:
    reader = open_split(whole.store, whole.folder, whole.manifest, whole.split, whole.reporter)
    count = min(spec.examples or len(reader), len(reader))
    images = reader.gather(np.arange(min(_COMPARED, count)), (IMAGE,))[IMAGE]
    difference = largest(in_batches(lambda batch: flat(model(batch, training=False)), images), in_batches(run, images))
    kind = kind_of(training.recipe)
    answers, examples = kind.answers(), replace(whole, places=np.arange(count))
    said = [answers.again(examples, training, each) for each in (model, _as_model(run, model))]
    before, after = (answers.main(examples, each).value for each in said)
    return ExportResult(
        run=spec.run,
        format=spec.format,
        file=spec.file,
        bytes=0,
        examples=count,
        measure=kind.measure,
        model=before,
        exported=after,
        differing=answers.differing(*said),
        difference=difference,
    )


def _made(
    spec: ExportSpec, store: Store, training: TrainSpec, manifest: Manifest, model: keras.Model, made: Path
) -> Callable[[Pixels], Outputs]:
    """Write the export to the path ``made``; return a function from images to the outputs of the export."""
    if spec.format == "saved-model":
        write_saved_model(model, made)
        return saved_model(made)
    if spec.format == "onnx":
        data = _onnx_file(store, model)
        with explained("write", made):
            made.write_bytes(data)
        return _onnx_model(data)
    calibrating = None
    if spec.format == "tflite-int8":
        reader = open_split(store, training.dataset_folder, manifest, TRAINING)
        chosen = permutation(training.recipe.seed, "calibration", 0, len(reader))[:_CALIBRATING]
        calibrating = reader.gather(chosen, (IMAGE,))[IMAGE]
    data = lite_file(store, model, calibrating)
    with explained("write", made):
        made.write_bytes(data)
    return lite_model(data)


def _onnx_file(store: Store, model: keras.Model) -> bytes:
    _blank_answer(model)  # Keras can only export a model that was called
    with store.workspace("onnx") as folder, warnings.catch_warnings():
        # Keras uses names that NumPy 2 no longer has.
        warnings.filterwarnings("ignore", category=FutureWarning, module="keras")
        model.export(folder / "model.onnx", format="onnx", verbose=False)
        return (folder / "model.onnx").read_bytes()


def _blank_answer(model: keras.Model) -> Any:
    return model(np.zeros((1, *model.input_shape[1:]), np.uint8), training=False)


def _onnx_model(data: bytes) -> Callable[[Pixels], Outputs]:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    [argument] = session.get_inputs()
    return lambda images: session.run(None, {argument.name: images})


def _as_model(run: Callable[[Pixels], Outputs], model: keras.Model) -> Callable[..., Any]:
    """Wrap the function of an export so that evaluations can call it like the Keras model."""
    blank = _blank_answer(model)
    outputs = tf.nest.flatten(blank)

    def asked(images: Any, training: bool = False) -> Any:  # noqa: ARG001 (as a Keras model)
        found = tf.numpy_function(
            lambda batch: in_batches(run, batch), [images], [output.dtype for output in outputs], stateful=False
        )
        shaped = [
            tf.ensure_shape(answer, (None, *output.shape[1:])) for answer, output in zip(found, outputs, strict=True)
        ]
        return tf.nest.pack_sequence_as(blank, shaped)

    return asked
