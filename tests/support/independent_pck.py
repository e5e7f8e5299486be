"""PCK in plain NumPy, from COCO documents alone, as somebody would compute it who has not seen Podline's."""

from __future__ import annotations

from typing import Any

import numpy as np
from pycocotools.cocoeval import Params

SIGMAS = Params("keypoints").kpt_oks_sigmas
MOST = 20


def oks(person: dict[str, Any], result: dict[str, Any]) -> float:
    """COCO's similarity; by the distance to twice the box where no joint is labelled."""
    truth, pose = (np.reshape(each["keypoints"], (-1, 3)) for each in (person, result))
    labelled = truth[:, 2] > 0
    x, y = (pose[:, axis] - truth[:, axis] for axis in (0, 1))
    if not labelled.any():
        left, top, width, height = person["bbox"]
        x, y = (
            np.maximum(0, low - size - each) + np.maximum(0, each - (low + 2 * size))
            for each, low, size in ((pose[:, 0], left, width), (pose[:, 1], top, height))
        )
        labelled[:] = True
    return float(np.mean(np.exp(-(x**2 + y**2) / (2 * SIGMAS) ** 2 / (person["area"] + np.spacing(1)) / 2)[labelled]))


def matched(people: list[dict[str, Any]], results: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The result of each person that counts, by its place: COCO's rule at OKS 0.5, then the rest by the nearest."""
    counts = [not person["iscrowd"] and person["num_keypoints"] > 0 for person in people]
    rest, taken = [], {}
    for result in sorted(results, key=lambda result: -result["score"])[:MOST]:
        similar = [oks(person, result) for person in people]
        wanted = [at for at, count in enumerate(counts) if count and at not in taken and similar[at] >= 0.5]
        ignored = [
            at
            for at, count in enumerate(counts)
            if not count and similar[at] >= 0.5 and (people[at]["iscrowd"] or at not in taken)
        ]
        if wanted or ignored:
            taken[max(wanted or ignored, key=lambda at: similar[at])] = result
        else:
            rest.append((result, similar))
    for result, similar in rest:
        free = [at for at, count in enumerate(counts) if count and at not in taken and similar[at] > 0]
        if free:
            taken[max(free, key=lambda at: similar[at])] = result
    return {at: result for at, result in taken.items() if counts[at]}


def pck(truth: dict[str, Any], results: list[dict[str, Any]], ends: tuple[int, int] | None, draws: int) -> np.ndarray:
    """Value, low and high of all joints together and then of each joint, (1 + joints, 3); NaN without a label."""
    counts = []
    for image in sorted(image["id"] for image in truth["images"]):
        people = [person for person in truth["annotations"] if person["image_id"] == image]
        found = matched(people, [result for result in results if result["image_id"] == image])
        close, labels = np.zeros((2, len(SIGMAS)))
        for at, person in enumerate(people):
            joints = np.reshape(person["keypoints"], (-1, 3))
            if person["iscrowd"] or not person["num_keypoints"] or (ends and not joints[list(ends), 2].all()):
                continue
            length = np.linalg.norm(joints[ends[0], :2] - joints[ends[1], :2] if ends else person["bbox"][2:])
            labels += joints[:, 2] > 0
            pose = np.reshape(found[at]["keypoints"], (-1, 3)) if at in found else np.zeros_like(joints)
            for joint in np.flatnonzero((joints[:, 2] > 0) & (pose != 0).any(axis=1)):
                close[joint] += np.linalg.norm(pose[joint, :2] - joints[joint, :2]) <= 0.2 * length
        counts.append([[close.sum(), *close], [labels.sum(), *labels]])
    random, every = np.random.default_rng(0), np.array(counts)
    with np.errstate(invalid="ignore"):
        value = np.divide(*every.sum(axis=0))
        drawn = [np.divide(*every[random.integers(len(every), size=len(every))].sum(axis=0)) for _ in range(draws)]
    bounds = [
        np.percentile(of[~np.isnan(of)], [2.5, 97.5]) if (~np.isnan(of)).any() else [np.nan] * 2
        for of in np.transpose(drawn)
    ]
    return np.concatenate([value[:, None], np.array(bounds)], axis=1)
