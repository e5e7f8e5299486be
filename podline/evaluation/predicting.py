"""Predicts for pictures with a finished run's model: skeletons, classes with probabilities, other answers."""

from __future__ import annotations

import io
import itertools
import json
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import matplotlib.image
import numpy as np
import tensorflow as tf

from podline.arrays import Image
from podline.data.picture_sandbox import PictureSandbox, read_picture_file
from podline.documents.manifest import read_manifest
from podline.errors import SourceError
from podline.evaluation.forward import finished_model
from podline.frozen import JsonObject
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of
from podline.progress import Reporter
from podline.stages.tools import PREDICTIONS, PicturePrediction, PredictResult, PredictSpec
from podline.store.contract import Store, explained
from podline.store.opening import open_store

_BATCH = 8


@dataclass(frozen=True, repr=False)
class Predicted:
    """A picture and the model's answer; a notebook shows both.

    Attributes:
        prediction: the answer as text and numbers.
        picture: uint8 (height, width, 3), with skeletons if people were found.
    """

    prediction: PicturePrediction
    picture: Image

    def _repr_png_(self) -> bytes:
        return _png(self.picture)

    def __str__(self) -> str:
        """Return the model's answer for the picture as a line."""
        return self.prediction.line()

    __repr__ = __str__


class PictureReader(Protocol):
    """The interface by which a kind of task prepares pictures for a model and formats its answers."""

    @property
    def threshold(self) -> float | None:
        """The least score of people; None for classes."""
        ...

    def fed(self, pixels: Image) -> Image:
        """Fit a picture, uint8 (height, width, 3), to the shape of the model's input."""
        ...

    def answers(self, outputs: Any) -> Any:
        """Select the model outputs that are used; runs in TensorFlow's graph."""
        ...

    def say(self, name: str, place: int, pixels: Image, answer: Any) -> Predicted:
        """Format the model's answer for a picture.

        Args:
            name: name of the picture.
            place: number of the picture, from 1.
            pixels: uint8 (height, width, 3).
            answer: the picture's output of :meth:`answers`.
        """
        ...


class Predictor:
    """A finished run's model, ready for predictions."""

    def __init__(self, store: Store, run: str, reporter: Reporter, threshold: float | None = None) -> None:
        """Load the model.

        Args:
            store: the store.
            run: the run's name.
            reporter: reports a missing evaluation, which would define the threshold.
            threshold: least score of people; by default the one that the run's evaluation chose.

        Raises:
            StoreError: there is no such finished run.
            ArtifactError: its weights have changed.
        """
        training = training_of(store, run)
        model = finished_model(store, run)
        manifest = read_manifest(store, training.dataset_folder)
        self._reader = kind_of(training.recipe).reader(store, training, manifest, threshold, reporter)
        self._answers: Callable[[Any], Any] = tf.function(
            lambda images: self._reader.answers(model(images, training=False)),
            input_signature=[tf.TensorSpec((None, *manifest.image_shape), tf.uint8)],
            autograph=False,
        )

    @property
    def threshold(self) -> float | None:
        """The least score of people; None for classes."""
        return self._reader.threshold

    def __call__(self, pictures: Iterator[tuple[str, Image]]) -> Iterator[Predicted]:
        """Predict for pictures, in small batches.

        Args:
            pictures: names with uint8 (height, width, 3), red, green, blue.
        """
        first = 1
        while batch := list(itertools.islice(pictures, _BATCH)):
            answers = self._answers(np.stack([self._reader.fed(pixels) for _, pixels in batch]))
            found = tf.nest.map_structure(np.asarray, answers)
            for place, (name, pixels) in enumerate(batch):
                answer = tf.nest.map_structure(operator.itemgetter(place), found)
                yield self._reader.say(name, first + place, pixels, answer)
            first += len(batch)


def run(spec: PredictSpec, reporter: Reporter) -> PredictResult:
    """Predict for the pictures and write the answers to ``spec.out``; the stage's function.

    Raises:
        SourceError: a file is not a picture; then nothing is written.
        StoreError: there is no such finished run, or the folder cannot be written.
        ArtifactError: the run's weights have changed.
    """
    started = time.monotonic()
    paths = [Path(image) for image in spec.images]
    with PictureSandbox() as sandbox:
        for path in paths:
            sandbox.check(read_picture_file(path))
    predictor = Predictor(open_store(spec.root), spec.run, reporter, spec.threshold)
    out, said = Path(spec.out), []
    for name, predicted in zip(_names(paths), predictor(named(paths)), strict=True):
        prediction = predicted.prediction
        if prediction.people is not None:
            _write(out / name, _png(predicted.picture))
            prediction = prediction.model_copy(update={"picture": str(out / name)})
        said.append(prediction)
        reporter.progress(len(said), len(paths), "pictures")
    _write(out / PREDICTIONS, (json.dumps(document(said), indent=2) + "\n").encode())
    return PredictResult(
        seconds=time.monotonic() - started,
        run=spec.run,
        json_file=str(out / PREDICTIONS),
        threshold=predictor.threshold,
        pictures=tuple(said),
    )


def named(pictures: Iterable[str | Path | Image]) -> Iterator[tuple[str, Image]]:
    """Yield pictures with their names: files, or arrays, which are numbered.

    Raises:
        SourceError: a file is not a picture, or an array has another shape.
    """
    with PictureSandbox() as sandbox:
        for number, picture in enumerate(pictures, start=1):
            if isinstance(picture, (str, Path)):
                [pixels] = sandbox.decode([read_picture_file(Path(picture))])
                yield str(picture), pixels
            else:
                channels = picture if picture.ndim == 3 else picture[..., None]
                if channels.ndim != 3 or channels.shape[-1] not in (1, 3):
                    raise SourceError(
                        f"picture {number}: got shape {picture.shape}, expected (height, width), (height, width, 1) "
                        "or (height, width, 3)"
                    )
                yield f"picture {number}", np.ascontiguousarray(np.broadcast_to(channels, (*picture.shape[:2], 3)))


def document(predictions: Sequence[PicturePrediction]) -> list[JsonObject]:
    """Return the content of the file: COCO results of all pictures, or each picture's classes or answer."""
    if all(prediction.people is not None for prediction in predictions):
        return [person for prediction in predictions for person in prediction.people or ()]
    fields = {"file", "classes", "answer"}
    return [prediction.model_dump(mode="json", include=fields, exclude_none=True) for prediction in predictions]


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """Return the name of a PNG file for each picture; a number distinguishes pictures of the same name.

    Names that differ in case only are the same on some file systems.
    """
    used = set[str]()
    for path in paths:
        candidates = itertools.chain([path.stem], (f"{path.stem}-{number}" for number in itertools.count(2)))
        name = next(name for name in candidates if name.casefold() not in used)
        used.add(name.casefold())
        yield f"{name}.png"


def _write(file: Path, data: bytes) -> None:
    """Write a file atomically, so that readers never see a part of it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with explained("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def _png(picture: Image) -> bytes:
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, picture, format="png")
    return buffer.getvalue()
