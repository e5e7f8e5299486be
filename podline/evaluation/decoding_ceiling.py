"""The decoder's ceiling: decodes perfect maps, drawn from the annotations.

What is missing from 1 is lost in the maps themselves, not by training. A table by size says how much of people's OKS is
lost, and to what.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, snapped
from podline.data.keypoints import from_annotated
from podline.documents.skeleton import COCO
from podline.errors import SourceError
from podline.evaluation.coco_results import Results, Truth, people_to_results, read_truth
from podline.evaluation.oks import MATCH, evaluate_results
from podline.evaluation.pose_decoding import decode_people
from podline.input.pose_targets import pose_targets
from podline.progress import Reporter, silent
from podline.recipes.pose_settings import DecodingSettings, PoseTargetSettings
from podline.stages.tools import LARGEST, CeilingRow, CeilingSpec, DecodingCeiling

ROOTS = (32, 48, 64, 96, 128, 192, LARGEST)
"""Borders of the table's rows: roots of areas at the network's input, in pixels; smaller people are left out."""

MIN_JOINTS = 5
"""People with fewer labelled joints, of COCO's, are left out."""

_BATCH = 16


class _Losses(NamedTuple):
    """What one person's OKS loses, in the order of :class:`CeilingRow`."""

    root: float
    merged: float
    detached: float
    inexact: float


class _Scene(NamedTuple):
    """The labelled people of an image at the network's input; poses float32 (people, 18, 3)."""

    image_id: int
    letterbox: LetterBox
    annotations: list[dict[str, Any]]
    poses: npt.NDArray[np.float32]


def ceiling(spec: CeilingSpec, reporter: Reporter) -> DecodingCeiling:
    """The decoder's ceiling over the people of some annotation files; the stage.

    Raises:
        SourceError: a file cannot be read, is not what it should be, or two of them share ids.
    """
    started = time.monotonic()
    found = decoding_ceiling(_together(spec.truths), spec.side, spec.targets, spec.decoding, reporter)
    return found.model_copy(update={"seconds": time.monotonic() - started})


def _together(files: Sequence[str]) -> Truth:
    truths = [read_truth(Path(file)) for file in files]
    for kind in ("images", "annotations"):
        ids = [entry["id"] for truth in truths for entry in truth[kind]]
        if len(set(ids)) < len(ids):
            raise SourceError(f"{' and '.join(files)}: {kind} share ids; give one of them at a time")
    together = {kind: [entry for truth in truths for entry in truth[kind]] for kind in ("images", "annotations")}
    return truths[0] | together


def decoding_ceiling(
    truth: Truth, side: int, targets: PoseTargetSettings, decoding: DecodingSettings, reporter: Reporter | None = None
) -> DecodingCeiling:
    """Draws the targets of every image with labelled people, decodes them and holds the result against truth.

    Args:
        truth: a COCO annotation document.
        side: of the network's input, in pixels.
        targets: how the maps are drawn.
        decoding: how they are decoded.
        reporter: told of progress.

    Raises:
        SourceError: truth is not what it should be.
    """
    scenes, reporter = _scenes(truth, side), reporter or silent()
    results: Results = []
    losses: dict[int, _Losses] = {}
    for first in range(0, len(scenes), _BATCH):
        batch = scenes[first : first + _BATCH]
        drawn = pose_targets(_padded(batch), np.zeros((len(batch), side, side), np.uint8), side, targets, COCO)
        found = decode_people(np.asarray(drawn.heatmaps), np.asarray(drawn.pafs), targets.stride, decoding, COCO)
        for scene, people in zip(batch, found, strict=True):
            results += people_to_results(people, scene.image_id, scene.letterbox, COCO)
            losses |= _losses(scene, people.poses, 2 * targets.stride)
        reporter.progress(first + len(batch), len(scenes), "images")
    return DecodingCeiling(
        total=_row(truth, results, losses, ROOTS[0], ROOTS[-1]),
        by_size=tuple(_row(truth, results, losses, low, high) for low, high in itertools.pairwise(ROOTS)),
    )


def _scenes(truth: Truth, side: int) -> list[_Scene]:
    people: dict[int, list[dict[str, Any]]] = {}
    for annotation in truth["annotations"]:
        if annotation["num_keypoints"] and not annotation["iscrowd"]:
            people.setdefault(annotation["image_id"], []).append(annotation)
    scenes = []
    for image in truth["images"]:
        if image["id"] in people:
            letterbox = LetterBox(image["width"], image["height"], side)
            given = np.array([annotation["keypoints"] for annotation in people[image["id"]]], np.float64)
            poses = given.reshape(len(given), -1, 3)
            poses[..., :2] = letterbox.joints_to_network(poses[..., :2])
            poses = from_annotated(poses, COCO)
            poses[..., :2] = snapped(poses[..., :2])
            scenes.append(_Scene(image["id"], letterbox, people[image["id"]], poses))
    return scenes


def _padded(scenes: list[_Scene]) -> npt.NDArray[np.float32]:
    poses = np.zeros((len(scenes), max(len(scene.poses) for scene in scenes), len(COCO.joints), 3), np.float32)
    for row, scene in zip(poses, scenes, strict=True):
        row[: len(scene.poses)] = scene.poses
    return poses


def _losses(scene: _Scene, found: npt.NDArray[np.float32], too_near: float) -> dict[int, _Losses]:
    """What each person of a scene loses, by the annotation's id; only people that count."""
    losses = {}
    sigmas, places = np.array(COCO.sigmas), np.array(COCO.places)
    for place, (annotation, pose) in enumerate(zip(scene.annotations, scene.poses, strict=True)):
        area = float(scene.letterbox.areas_to_network(annotation["area"]))
        if area < ROOTS[0] ** 2 or annotation["num_keypoints"] < MIN_JOINTS:
            continue
        labelled = pose[places, 2] > 0
        joints = places[labelled]
        distances = np.linalg.norm(found[:, joints, :2] - pose[joints, :2], axis=-1)  # (people found, joints)
        near = np.exp(-((distances / (2 * sigmas[labelled])) ** 2) / (2 * area)) * (found[:, joints, 2] > 0)
        taken = near[near.sum(axis=1).argmax()] if len(near) else np.zeros(len(joints))
        lost = (1 - taken) / len(joints)
        merged = _nearest_other(scene.poses, place)[joints] <= too_near
        detached = ~merged & (taken < MATCH)
        losses[annotation["id"]] = _Losses(
            float(np.sqrt(area)),
            float(lost[merged].sum()),
            float(lost[detached].sum()),
            float(lost[~merged & ~detached].sum()),
        )
    return losses


def _nearest_other(poses: npt.NDArray[np.float32], person: int) -> npt.NDArray[np.float64]:
    """How far each joint of a person is from the same joint of the nearest other person, in pixels, (18,)."""
    others = np.delete(poses, person, axis=0)
    distances = np.linalg.norm(others[..., :2] - poses[person, :, :2], axis=-1)
    return np.where(others[..., 2] > 0, distances, np.inf).min(axis=0, initial=np.inf)


def _row(truth: Truth, results: Results, losses: dict[int, _Losses], low: float, high: float) -> CeilingRow:
    chosen = {person: loss for person, loss in losses.items() if low <= loss.root < high}
    means = np.mean(list(chosen.values()), axis=0)[1:].tolist() if chosen else [0.0, 0.0, 0.0]
    ignoring = {**truth, "annotations": [_ignored_unless(chosen, annotation) for annotation in truth["annotations"]]}
    return CeilingRow(
        low=low,
        high=high,
        people=len(chosen),
        ap=evaluate_results(ignoring, results).figures.ap,
        oks=1 - sum(means) if chosen else 0.0,
        merged=means[0],
        detached=means[1],
        inexact=means[2],
    )


def _ignored_unless(chosen: dict[int, _Losses], annotation: dict[str, Any]) -> dict[str, Any]:
    """COCO's measure ignores people without labelled joints, and does not hold it against a result to find them."""
    return annotation if annotation["id"] in chosen else annotation | {"num_keypoints": 0}
