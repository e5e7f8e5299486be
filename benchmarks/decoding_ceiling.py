"""Measures the ceiling of the pose decoder: draws maps from COCO annotations and decodes them again.

    python -m benchmarks.decoding_ceiling person_keypoints_val2017.json --set pose.side=368

What is missing from 1 is lost in the maps themselves, not by training. A table by size says how much of people's OKS is
lost, and to what.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, snapped
from podline.data.keypoints import from_annotated
from podline.documents.skeleton import COCO
from podline.figures import count, percent
from podline.input.pose_targets import pose_targets
from podline.kinds.pose.coco_results import Results, Truth, people_to_results, read_truth
from podline.kinds.pose.decoding import decode_people
from podline.kinds.pose.oks import MATCH, evaluate_results
from podline.options import Choices
from podline.recipes import registry
from podline.recipes.pose_settings import DecodingSettings, PoseTargetSettings

_LARGEST = 100_000  # a root of an area that no person reaches
ROOTS = (32, 48, 64, 96, 128, 192, _LARGEST)
"""Borders of the table's rows: roots of areas at the network's input, in pixels; smaller people are left out."""

MIN_JOINTS = 5
"""People with fewer labelled joints, of COCO's, are left out."""

_BATCH = 16


class CeilingRow(NamedTuple):
    """People of one size.

    Attributes:
        low: the least root of their area at the network's input, in pixels.
        high: the largest.
        people: how many.
        ap: average precision with all other people ignored, -1 where there is none.
        oks: mean over people of the best OKS that any person found has with them, 0…1. What is missing from 1:
        merged: joints that lie within two cells of another person's same joint: their peaks bend or become one.
        detached: other joints that are missing, or belong to another person found.
        inexact: other joints that are where they should be, but not quite.
    """

    low: float
    high: float
    people: int
    ap: float
    oks: float
    merged: float
    detached: float
    inexact: float

    def cells(self) -> list[str]:
        """Return the cells of a row of the table."""
        size = f"{self.low:g}–{self.high:g} px" if self.high < _LARGEST else f"from {self.low:g} px"
        if not self.people:
            return [size, "0", *("–" * 5)]
        losses = (percent(lost) for lost in (self.merged, self.detached, self.inexact))
        return [size, count(self.people), f"{self.ap:.3f}", f"{self.oks:.3f}", *losses]


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


def decoding_ceiling(
    truth: Truth, side: int, targets: PoseTargetSettings, decoding: DecodingSettings
) -> list[CeilingRow]:
    """Draw the targets of every image with labelled people, decode them, and compare the result with truth.

    Args:
        truth: a COCO annotation document.
        side: of the network's input, in pixels.
        targets: how the maps are drawn.
        decoding: how they are decoded.

    Returns:
        A row for each size; the last one is of all people.
    """
    scenes = _scenes(truth, side)
    results: Results = []
    losses: dict[int, _Losses] = {}
    for first in range(0, len(scenes), _BATCH):
        batch = scenes[first : first + _BATCH]
        drawn = pose_targets(_padded(batch), np.zeros((len(batch), side, side), np.uint8), side, targets, COCO)
        found = decode_people(np.asarray(drawn.heatmaps), np.asarray(drawn.pafs), targets.stride, decoding, COCO)
        for scene, people in zip(batch, found, strict=True):
            results += people_to_results(people, scene.image_id, scene.letterbox, COCO)
            losses |= _losses(scene, people.poses, 2 * targets.stride)
    borders = [*itertools.pairwise(ROOTS), (ROOTS[0], ROOTS[-1])]
    return [_row(truth, results, losses, low, high) for low, high in borders]


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
    """Return what each person of a scene loses, by the annotation's id; only people that count."""
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
    """Return how far each joint of a person is from the same joint of the nearest other person, in pixels, (18,)."""
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the best that the decoder of a pose recipe could do.")
    parser.add_argument("truth", type=Path, help="COCO annotations of people")
    parser.add_argument("--recipe", default="coco_pose", help="whose targets and decoder are measured")
    parser.add_argument("--set", dest="assignments", action="append", default=[], help="FIELD=VALUE of it")
    given = parser.parse_args()
    poses = Choices(assignments=tuple(given.assignments)).apply(registry.get(given.recipe)).poses
    row = "{:>12} {:>7} {:>7} {:>7} {:>8} {:>9} {:>8}".format
    lines = [row("root of area", "people", "AP", "OKS", "merged", "detached", "inexact")]
    table = decoding_ceiling(read_truth(given.truth), poses.side, poses.targets, poses.decoding)
    sys.stdout.write("\n".join([*lines, *(row(*each.cells()) for each in table), ""]))


if __name__ == "__main__":
    main()
