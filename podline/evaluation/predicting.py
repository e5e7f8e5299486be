"""Predicts with a finished run's model on any pictures: skeletons, or classes with probabilities."""

from __future__ import annotations

import io
import json
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import matplotlib.image
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.coco_letterbox import LetterBox
from podline.data.pictures import check_picture, read_picture
from podline.documents.evaluation import chosen_threshold
from podline.documents.manifest import Manifest, read_manifest
from podline.drawing.skeletons import poses_of, with_skeletons
from podline.errors import StoreError
from podline.evaluation.coco_results import people_to_results
from podline.evaluation.pose_decoding import decode_people
from podline.evaluation.poses import last_stages
from podline.inventory.catalogue import run_of, training_of
from podline.progress import Reporter
from podline.recipes.pose_settings import PoseSettings
from podline.stages.prediction import JSON, ClassShare, PicturePrediction, PredictResult, PredictSpec
from podline.stages.table import TRAIN
from podline.store.contract import Store, explained
from podline.store.opening import open_store
from podline.training.export import load_model

Image = npt.NDArray[np.uint8]

_BATCH = 8
# A smaller picture is enlarged before skeletons are drawn on it, so that they can be seen.
_LEAST_SIDE = 640


@dataclass(frozen=True)
class Predicted:
    """A picture and what the model says of it; a notebook shows it.

    Attributes:
        prediction: in words and numbers.
        picture: uint8 (height, width, 3), with skeletons if there are people to draw.
    """

    prediction: PicturePrediction
    picture: Image

    def _repr_png_(self) -> bytes:
        return _png(self.picture)

    def __str__(self) -> str:
        """What the model says of the picture, as a line."""
        return self.prediction.line()


class Predictor:
    """A finished run's model, ready to look at pictures.

    Attributes:
        threshold: people with a lower score are left out; None for classes.
    """

    def __init__(self, store: Store, run: str, reporter: Reporter, threshold: float | None = None) -> None:
        """Loads the model.

        Args:
            store: the store.
            run: the run's name.
            reporter: told where there is no evaluation to take the threshold from.
            threshold: of people's scores; by default the one that the run's evaluation chose.

        Raises:
            StoreError: there is no such finished run.
            ArtifactError: its weights are not what they were.
        """
        training = training_of(store, run)
        finished = run_of(store, run).stages.get(TRAIN.name)
        if finished is None:
            raise StoreError(f"{store.uri}: run {run} is not finished; `podline train` goes on with it")
        model: Any = load_model(store, training.folder, finished.result["weights_sha256"])
        manifest = read_manifest(store, training.dataset_folder)
        poses, self.threshold = training.recipe.pose, None
        pick: Callable[[Any], Any] = last_stages(poses) if poses else (lambda logits: logits)
        self._input = input_of(poses, manifest)
        self._say: Callable[[str, int, Image, Any], Predicted] = partial(_classes, manifest=manifest)
        if poses:
            self.threshold = _threshold(store, training.folder, reporter) if threshold is None else threshold
            self._say = partial(_people, poses=poses, threshold=self.threshold)
        self._answers: Callable[[Any], Any] = tf.function(
            lambda images: pick(model(images, training=False)),
            input_signature=[tf.TensorSpec((None, *manifest.image_shape), tf.uint8)],
            autograph=False,
        )

    def __call__(self, pictures: Iterator[tuple[str, Image]]) -> Iterator[Predicted]:
        """Looks at some pictures, a few at a time.

        Args:
            pictures: names, and uint8 (height, width, 3), red, green, blue.
        """
        first = 1
        while batch := list(islice(pictures, _BATCH)):
            answers = self._answers(np.stack([self._input(pixels) for _, pixels in batch]))
            found = tf.nest.map_structure(np.asarray, answers)
            for place, (name, pixels) in enumerate(batch):
                answer = tf.nest.map_structure(operator.itemgetter(place), found)
                yield self._say(name, first + place, pixels, answer)
            first += len(batch)


def run(spec: PredictSpec, reporter: Reporter) -> PredictResult:
    """Looks at the pictures and writes what it sees into ``spec.out``; the stage.

    Raises:
        SourceError: a file is no picture; nothing is written then.
        StoreError: there is no such finished run, or the folder cannot be written.
        ArtifactError: the run's weights are not what they were.
    """
    started = time.monotonic()
    paths = [Path(image) for image in spec.images]
    for path in paths:
        check_picture(path)
    predictor = Predictor(open_store(spec.root), spec.run, reporter, spec.threshold)
    out, said = Path(spec.out), []
    for name, predicted in zip(_names(paths), predictor(named(paths)), strict=True):
        prediction = predicted.prediction
        if prediction.people is not None:
            _write(out / name, _png(predicted.picture))
            prediction = prediction.model_copy(update={"picture": str(out / name)})
        said.append(prediction)
        reporter.progress(len(said), len(paths), "pictures")
    _write(out / JSON, (json.dumps(document(said), indent=2) + "\n").encode())
    return PredictResult(
        seconds=time.monotonic() - started,
        run=spec.run,
        json_file=str(out / JSON),
        threshold=predictor.threshold,
        pictures=tuple(said),
    )


def input_of(poses: PoseSettings | None, manifest: Manifest) -> Callable[[Image], Image]:
    """How a picture of any size, uint8 (height, width, 3), becomes what a model takes.

    Args:
        poses: a pose network's settings; None for a classifier.
        manifest: of the data set that the model was trained on.
    """
    return partial(_letterboxed, side=poses.side) if poses else partial(_resized, manifest=manifest)


def named(pictures: Iterable[str | Path | Image]) -> Iterator[tuple[str, Image]]:
    """Pictures with their names: files, or arrays, which are numbered.

    Raises:
        SourceError: a file is no picture.
    """
    for number, picture in enumerate(pictures, start=1):
        if isinstance(picture, (str, Path)):
            yield str(picture), read_picture(Path(picture))
        else:
            channels = picture if picture.ndim == 3 else picture[..., None]
            yield f"picture {number}", np.ascontiguousarray(np.broadcast_to(channels, (*picture.shape[:2], 3)))


def document(predictions: Sequence[PicturePrediction]) -> list[Any]:
    """What goes into the file: COCO results of all pictures, or each picture's classes."""
    if all(prediction.people is not None for prediction in predictions):
        return [person for prediction in predictions for person in prediction.people or ()]
    return [prediction.model_dump(mode="json", include={"file", "classes"}) for prediction in predictions]


def _threshold(store: Store, folder: str, reporter: Reporter) -> float:
    chosen = chosen_threshold(store, folder)
    if chosen is None:
        reporter.warn("everybody is drawn, however low the score: no evaluation chose a threshold; give --threshold")
    return chosen or 0.0


def _people(
    name: str, place: int, pixels: Image, answer: tuple[Any, Any], poses: PoseSettings, threshold: float
) -> Predicted:
    heatmaps, pafs = answer
    [people] = decode_people(heatmaps[None], pafs[None], poses.targets.stride, poses.decoding)
    height, width = pixels.shape[:2]
    results = people_to_results(people, _image_id(name, place), LetterBox(width, height, poses.side))
    kept = [{**person, "file_name": Path(name).name} for person in results if person["score"] >= threshold]
    prediction = PicturePrediction(file=name, width=width, height=height, people=tuple(kept))
    return Predicted(prediction, with_skeletons(pixels, poses_of(kept), max(1.0, _LEAST_SIDE / max(width, height))))


def _image_id(name: str, place: int) -> int:
    """COCO's id where the file is called as COCO's are, else the picture's place, from 1."""
    numbered = re.fullmatch(r"(?:COCO_\w+_)?(\d{12})", Path(name).stem)
    return int(numbered[1]) if numbered else place


def _classes(name: str, _place: int, pixels: Image, logits: npt.NDArray[np.float32], manifest: Manifest) -> Predicted:
    odds = np.exp(logits.astype(np.float64) - logits.max())
    shares = odds / odds.sum()
    named = tuple(
        ClassShare(name=manifest.class_names[label], probability=float(shares[label]))
        for label in np.argsort(-shares, kind="stable").tolist()
    )
    height, width = pixels.shape[:2]
    return Predicted(PicturePrediction(file=name, width=width, height=height, classes=named), pixels)


def _letterboxed(pixels: Image, side: int) -> Image:
    return LetterBox(pixels.shape[1], pixels.shape[0], side).place(pixels)


def _resized(pixels: Image, manifest: Manifest) -> Image:
    """The whole picture in the shape of the data set's images, grey if they are."""
    height, width, channels = manifest.image_shape
    shrinks = pixels.shape[0] * pixels.shape[1] >= height * width
    scaled = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    grey: Any = cv2.cvtColor(scaled, cv2.COLOR_RGB2GRAY) if channels == 1 else scaled
    return grey.reshape(height, width, channels)


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """A PNG file's name for each picture; pictures of the same name are told apart by a number."""
    used: dict[str, int] = {}
    for path in paths:
        used[path.stem] = used.get(path.stem, 0) + 1
        yield f"{path.stem}.png" if used[path.stem] == 1 else f"{path.stem}-{used[path.stem]}.png"


def _write(file: Path, data: bytes) -> None:
    """Writes a file whole: whoever looks at it never sees half of it."""
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
