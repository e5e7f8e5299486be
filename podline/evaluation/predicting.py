"""Predicts for pictures with a finished run's model: skeletons, classes with probabilities, other answers."""

# pyright: standard
from __future__ import annotations

import contextlib
import io
import itertools
import json
import operator
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Image
from podline.base.errors import SettingsError, SourceError
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter, counted, reported_by
from podline.contract.kind import kind_of
from podline.contract.picture_reader import PictureReader
from podline.data.images.settings import ClassesSettings, ImagesSettings
from podline.data.picture_sandbox import PictureFile, PictureSandbox, read_picture_file
from podline.data.pictures import Form
from podline.data.sources.decoding import FittedPictures
from podline.documents.corrections import forgotten
from podline.documents.manifest import read_manifest
from podline.evaluation.answer_table import write_table
from podline.evaluation.forward import finished_model
from podline.evaluation.pictures import Batch, asked_for, decoded, is_picture_file
from podline.ledger.inventory.catalogue import training_of
from podline.settings import machine as settings
from podline.stages.from_recipe import converter_settings
from podline.stages.tools import PREDICTIONS, PicturePrediction, PredictResult, PredictSpec
from podline.store.contract import Store
from podline.store.local_files import appearing
from podline.store.opening import open_store

_NAMED = 3  # number of left-out pictures that the summary names
MOST_LISTED = 1_000
"""Largest number of pictures whose answers are listed without a table."""
_FEW = 8  # number of original pictures in memory, which may be of any size
_MOST, _PIXELS = 256, 2_000_000  # limits of a batch: images, and pixels of all images


@dataclass(frozen=True, repr=False)
class Predicted:
    """A picture with the model's answer; a notebook displays both.

    Attributes:
        prediction: the answer as text and numbers.
        picture: uint8 (height, width, 3), with the skeletons of the people that were found.
    """

    prediction: PicturePrediction
    picture: Image

    def _repr_png_(self) -> bytes:
        return _png(self.picture)

    def __str__(self) -> str:
        """Return the model's answer for the picture as a line."""
        return self.prediction.line()

    __repr__ = __str__


class Predictor:
    """A finished run's model, ready for predictions.

    Attributes:
        manifest: the manifest of the run's data set.
        reader: prepares pictures and formats answers.
    """

    def __init__(self, store: Store, run: str, reporter: Reporter, threshold: float | None) -> None:
        """Open a run.

        Args:
            store: the store with the run.
            run: the run's name.
            reporter: warns if no evaluation chose a threshold.
            threshold: least score of people or probability of labels; None for that of the run's evaluation.

        Raises:
            StoreError: there is no such run, or no data set of it.
            SettingsError: the threshold is not from 0 to 1.
            ArtifactError: a document of the run or of the data set is damaged.
        """
        if threshold is not None and not 0 <= threshold <= 1:
            raise SettingsError(f"got threshold={threshold}, expected 0 to 1")
        self._store, self._run = store, run
        self._training = training = training_of(store, run)
        self.manifest = read_manifest(store, training.dataset_folder)
        self.reader = kind_of(training.recipe).reader(store, training, self.manifest, threshold, reporter)

    @cached_property
    def _answers(self) -> Callable[[Any], Any]:
        """The function from images to answers; the first access loads the model, as pictures may be refused before."""
        model = finished_model(self._store, self._run)
        return tf.function(
            lambda images: self.reader.answers(model(images, training=False)),
            input_signature=[tf.TensorSpec((None, *self.manifest.image_shape), tf.uint8)],
            autograph=False,
        )

    def layouts(self) -> ImagesSettings:
        """Return the settings for reading sources of the run's data set; those of ``images`` if it has none."""
        with contextlib.suppress(SettingsError):  # the data set's package is missing
            found = converter_settings(self.manifest.dataset, self._training.recipe, {})
            if isinstance(found, ImagesSettings):
                return found
        return ClassesSettings()

    def becoming(self) -> FittedPictures:
        """Return the target shape and fit of pictures for decoding."""
        known = forgotten(self._store, self.manifest.dataset)
        form, most = self.reader.form(self.manifest), settings.load().parse_pixels
        height, width, channels = form.shape
        return FittedPictures((height, width, channels), form.fit, known, white=form.white, most=most)

    def answers(self, images: Array) -> Iterator[Any]:
        """Yield the model's output for each of the images, uint8 (n, height, width, channels), computed in batches.

        Raises:
            StoreError: the run is not finished.
            ArtifactError: its weights have changed.
        """
        height, width = self.reader.shape[:2]
        batch = max(1, min(_MOST, _PIXELS // (height * width)))
        for start in range(0, len(images), batch):
            found = tf.nest.map_structure(np.asarray, self._answers(images[start : start + batch]))
            for place in range(len(images[start : start + batch])):
                yield tf.nest.map_structure(operator.itemgetter(place), found)

    def __call__(self, pictures: Iterable[str | Path | Image]) -> Iterator[Predicted]:
        """Predict for pictures, given as files or arrays, a few at a time.

        Raises:
            SourceError: see :func:`named`.
        """
        first, found = 1, named(pictures, self.reader, self.reader.form(self.manifest))
        while batch := list(itertools.islice(found, _FEW)):
            answers = self.answers(np.stack([fed for _, _, fed in batch]))
            for place, ((name, pixels, _), answer) in enumerate(zip(batch, answers, strict=True), first):
                height, width = pixels.shape[:2]
                prediction = self.reader.said(name, place, (width, height), answer)
                yield Predicted(prediction, self.reader.drawn(prediction, pixels))
            first += len(batch)


def run(spec: PredictSpec, reporter: Reporter) -> PredictResult:
    """Predict for pictures and write the answers; the stage's function.

    Raises:
        SourceError: a source cannot be read or has no pictures; or only files are given, and without a table, and one
            is not a picture. Then nothing is written.
        SettingsError: there are too many pictures without a table.
        StoreError: there is no such finished run, or the folder cannot be written.
        ArtifactError: the run's weights have changed.
    """
    started = time.monotonic()
    with ExitStack() as opened, reported_by(reporter):
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="podline-predict-")))
        predictor = Predictor(open_store(spec.root), spec.run, reporter, spec.threshold)
        asked = asked_for(spec.images, predictor.layouts(), folder, opened)
        total = sum(1 for _ in asked())
        if total > MOST_LISTED and not spec.table:
            raise SettingsError(
                f"got {total:,} pictures, expected at most {MOST_LISTED:,} without a table; write the answers into one "
                "with --table answers.parquet"
            )
        batches = decoded(counted(asked(), total, "pictures"), predictor.becoming(), folder)
        result = PredictResult(run=spec.run, threshold=predictor.reader.threshold)
        if spec.table:
            most = spec.top or predictor.reader.most
            answers = partial(_said_of, predictor, most=most)
            tells, names = predictor.reader.tells, predictor.manifest.class_names
            summary = write_table(Path(spec.table), batches, answers, tells, names, most)
            result = result.changed(table=spec.table, summary=summary)
        else:
            refuse, left_out = all(is_picture_file(Path(path)) for path in spec.images), list[str]()
            predictions = tuple(_written(predictor, batches, Path(spec.out), left_out, refuse=refuse))
            summary = [f"left out: {line}" for line in left_out[:_NAMED]]
            summary += [f"and {len(left_out) - _NAMED:,} more"] if len(left_out) > _NAMED else []
            listed = str(Path(spec.out) / PREDICTIONS)
            result = result.changed(pictures=predictions, json_file=listed, summary=tuple(summary))
            _write(Path(result.json_file), (json.dumps(document(predictions), indent=2) + "\n").encode())
    reporter.progress(total, total, "pictures")
    return result.changed(seconds=time.monotonic() - started)


def _said_of(predictor: Predictor, batch: Batch, most: int | None = None) -> Iterator[PicturePrediction]:
    """Yield the model's answers for the decoded pictures of a batch, with the ``most`` most probable classes."""
    answers = predictor.answers(batch.images) if batch.kept else ()
    for place, answer in zip(batch.kept, answers, strict=True):
        look = batch.looks[place]
        yield predictor.reader.said(
            batch.asked[place].name, batch.first + place, (look.width, look.height), answer, most
        )


def _written(
    predictor: Predictor, batches: Iterable[Batch], out: Path, left_out: list[str], *, refuse: bool
) -> Iterator[PicturePrediction]:
    """Yield the answers to pictures; for people, also write each picture with skeletons into the folder.

    Pictures that cannot be decoded are added to ``left_out`` as lines; with ``refuse``, the first is a SourceError.
    """
    used = set[str]()
    with PictureSandbox() as sandbox:
        for batch in batches:
            bad = [
                f"{asked.name} {look.reason}"
                for asked, look in zip(batch.asked, batch.looks, strict=True)
                if look.reason
            ]
            if bad and refuse:
                raise SourceError(bad[0])
            left_out += bad
            for place, answer in zip(batch.kept, _said_of(predictor, batch), strict=True):
                if answer.people is None:
                    yield answer
                    continue
                picture = batch.asked[place]
                [pixels] = sandbox.decode([PictureFile(picture.name, picture.read())])
                file = out / _name(Path(picture.name).stem, used)
                _write(file, _png(predictor.reader.drawn(answer, pixels)))
                yield answer.model_copy(update={"picture": str(file)})


def named(
    pictures: Iterable[str | Path | Image], reader: PictureReader, form: Form
) -> Iterator[tuple[str, Image, Image]]:
    """Yield (name, pixels, model input) of each picture: a file by its path, an array by its number.

    Raises:
        SourceError: a file cannot be read or is not a picture; or an array is not uint8 of the shape (height, width),
            (height, width, 1) or (height, width, 3).
    """
    with PictureSandbox() as sandbox:
        for number, picture in enumerate(pictures, start=1):
            if isinstance(picture, (str, Path)):
                file = read_picture_file(Path(picture))
                [pixels], [fed] = sandbox.decode([file]), sandbox.decode([file], form)
                yield str(picture), pixels, fed
            else:
                array = np.asarray(picture)
                channels = array if array.ndim == 3 else array[..., None]
                if array.dtype != np.uint8 or not array.size or channels.ndim != 3 or channels.shape[-1] not in (1, 3):
                    raise SourceError(
                        f"picture {number}: got {array.dtype} {array.shape}, expected uint8 (height, width), "
                        "(height, width, 1) or (height, width, 3)"
                    )
                pixels = np.ascontiguousarray(np.broadcast_to(channels, (*array.shape[:2], 3)))
                yield f"picture {number}", pixels, reader.fed(pixels)


def document(predictions: Sequence[PicturePrediction]) -> list[JsonObject]:
    """Return the content of the JSON file: the COCO results of all pictures, or the classes or answer of each."""
    if all(prediction.people is not None for prediction in predictions):
        return [person for prediction in predictions for person in prediction.people or ()]
    fields = {"file", "classes", "answer"}
    return [prediction.model_dump(mode="json", include=fields, exclude_none=True) for prediction in predictions]


def _name(stem: str, used: set[str]) -> str:
    """Return the name of a PNG file for a picture; a number distinguishes pictures of the same name.

    Names that differ in case only are the same on some file systems.
    """
    candidates = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    name = next(name for name in candidates if name.casefold() not in used)
    used.add(name.casefold())
    return f"{name}.png"


def _write(file: Path, data: bytes) -> None:
    with appearing(file) as temporary:
        temporary.write_bytes(data)


def _png(picture: Image) -> bytes:
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, picture, format="png")
    return buffer.getvalue()
