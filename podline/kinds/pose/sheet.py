"""A picture sheet of poses: the network's input, and the people that a run finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.coco_letterbox import LetterBox
from podline.data.reader import open_split
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest
from podline.documents.skeleton import Skeleton
from podline.drawing.picture_sheet import LARGE, Block, Image, Picture, PictureRow, Sheet, sheet
from podline.drawing.skeletons import poses_of, with_skeletons
from podline.errors import StoreError
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.inventory.catalogue import run_of
from podline.kinds.pose.judging import FIELDS, chosen_threshold, find_people, pose_answers
from podline.kinds.table import kind_of
from podline.plurals import plural
from podline.progress import Reporter
from podline.stages.table import TRAIN
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.training.export import load_model
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, plan_training

_KEYPOINTS = "keypoints"
# A record with people; those without are fed as well, but there is nothing to see.
_WITH_PEOPLE = 2


def pose_sheet(spec: ShowSpec, store: Store, manifest: Manifest, reporter: Reporter) -> tuple[Sheet, int, int]:
    """Return what the network is fed and, if the spec names a run, whom it finds.

    Raises:
        StoreError: there is no such finished run.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set or the weights are not what they were.
    """
    blocks = [_fed(spec, store, manifest)]
    if spec.run:
        blocks.append(_found(spec, store, manifest, reporter))
    # People are found or missed, not right or wrong.
    return sheet(blocks, LARGE), 0, 0


def _fed(spec: ShowSpec, store: Store, manifest: Manifest) -> Block:
    """The first examples of the first batch, as stored and as each of the first epochs augments them."""
    reader = open_split(store, spec.dataset_folder, manifest, TRAINING_SPLIT)
    order = plan_training(spec.recipe, manifest).order
    fields, augmentation = kind_of(spec.recipe).objective(spec.recipe, manifest).fields, spec.recipe.image_augmentation
    source = TrainingInput(reader, manifest, fields, order=order, augmentation=augmentation)
    _, ids, stored = source.read(0)
    ids, stored = ids[: spec.examples], {name: values[: spec.examples] for name, values in stored.items()}
    rows = [PictureRow("as stored", _drawn(stored, manifest.skeleton))]
    about = f"examples of the training split of {manifest.dataset}"
    if augmentation == type(augmentation)():
        return Block(_heading(spec), f"{about}; the recipe has no augmentation: fed as stored", rows)
    rows += [
        PictureRow(f"epoch {epoch + 1}", _drawn(source.augmented(epoch, ids, stored), manifest.skeleton))
        for epoch in range(spec.epochs)
    ]
    return Block(_heading(spec), f"{about}; below, each as the first epochs augment it", rows)


def _heading(spec: ShowSpec) -> str:
    return f"What the network of {spec.recipe.name} is fed"


def _drawn(arrays: dict[str, npt.NDArray[Any]], skeleton: Skeleton) -> list[Picture]:
    """Images with the people of their records."""
    return [
        _picture(image, poses[(poses[..., 2] > 0).any(axis=-1)], skeleton)
        for image, poses in zip(arrays["image"], arrays[_KEYPOINTS], strict=True)
    ]


def _picture(image: Image, poses: npt.NDArray[np.float32], skeleton: Skeleton) -> Picture:
    # Drawn on at twice its size, skeletons are thin enough for what is below them to be seen.
    return Picture(with_skeletons(image, poses, skeleton, 2.0), plural(len(poses), "instance"))


def _found(spec: ShowSpec, store: Store, manifest: Manifest, reporter: Reporter) -> Block:
    """The first test images with people: whom the run finds, and who is labelled."""
    folder = f"runs/{spec.run}"
    if not store.exists(completion_name(folder, TRAIN.name)):
        raise StoreError(f"{store.uri}: run {spec.run} is not finished; `podline train` goes on with it")
    weights = run_of(store, spec.run).stages[TRAIN.name].result["weights_sha256"]
    poses = spec.recipe.poses
    answers = pose_answers(load_model(store, folder, weights), tf.distribute.get_strategy(), poses)
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    labels = reader.gather(np.arange(len(reader)), ["label"])["label"]
    ids = np.flatnonzero(labels == _WITH_PEOPLE)[: spec.examples]
    batches = EvaluationInput(reader, manifest, FIELDS, batch_size=spec.recipe.evaluation_batch_size, ids=ids)
    done = 0

    def news(images: int) -> None:
        nonlocal done
        done += images
        reporter.progress(done, batches.count, "images")

    threshold = chosen_threshold(store, folder) or 0.0
    people = [person for person in find_people(answers, batches, poses, news) if person["score"] >= threshold]
    records = reader.gather(ids, ["image", "image_id", "size", _KEYPOINTS])
    pictures = []
    places = zip(records["image"], records["image_id"][:, 0], records["size"].tolist(), strict=True)
    for image, image_id, (width, height) in places:
        mine = poses_of([person for person in people if person["image_id"] == image_id], manifest.skeleton)
        letterbox = LetterBox(width, height, poses.side)
        mine[..., :2] = np.where(mine[..., 2:] > 0, letterbox.joints_to_network(mine[..., :2]), 0)
        pictures.append(_picture(image, mine, manifest.skeleton))
    rows = [PictureRow("found", pictures), PictureRow("labelled", _drawn(records, manifest.skeleton))]
    about = f"the first test images with instances; those with a score from {threshold:.3f} on are drawn"
    return Block(f"What {spec.run} finds", about, rows if len(ids) else [])
