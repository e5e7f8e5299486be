"""Measures how often new images are called other than old ones: quiet nights, and nights with another camera.

``python -m benchmarks.looks FOLDER`` with JPEG files in class folders, as CIFAR-10's, all of one size; and ``ROOT RUN``
for a second classifier, on the features of a run that was trained on none of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from podline.arrays import Image
from podline.evaluation import looks
from podline.evaluation.data_changes import features_of
from podline.evaluation.forward import finished_model
from podline.evaluation.looks import Classifier, Key, Sample, Statistic
from podline.store.opening import open_store

OLD, CHANGED = 2_000, 3  # old images of a night, and the number of the class that another camera took
HELD_OUT = 50  # of each class of the old ones, at most, are those that the run could have been tested on
QUIET, SHIFTED = 100, 10
Change = Callable[[Image, int], Image]
"""From a new image and its class to what is new about it."""
Model = Callable[[npt.NDArray[np.uint8]], looks.Floats]
"""From images, RGB, to a model's features."""


def brighter(image: Image, _number: int) -> Image:
    """Return an image that is a tenth brighter."""
    return np.clip(image * 1.1, 0, 255).astype(np.uint8)


def compressed(image: Image, number: int) -> Image:
    """Return an image of one class as a JPEG file of quality 60 has it."""
    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 60])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8) if number == CHANGED else image


def blurred(image: Image, number: int) -> Image:
    """Return an image of one class as another lens would see it."""
    return np.asarray(cv2.GaussianBlur(image, (0, 0), 0.6), np.uint8) if number == CHANGED else image


def night(
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    count: int,
    seed: int,
    change: Change,
    model: Model | None = None,
) -> set[str]:
    """Return the groups that are called changed after a night with other shares of the classes.

    Args:
        images: to draw from, uint8 (n, height, width, 3).
        labels: the class of each.
        count: of new images.
        seed: of the night.
        change: what is new.
        model: that gives a second classifier its features.
    """
    random, classes = np.random.default_rng(seed), int(labels.max()) + 1
    order = random.permutation(len(images))
    of_class = [order[labels[order] == number] for number in range(classes)]
    counts = random.multinomial(count, random.dirichlet(np.full(classes, 3.0)))
    new = np.concatenate([mine[:number] for mine, number in zip(of_class, counts, strict=True)])
    wanted = -(-OLD * counts // count)
    parts = zip(of_class, counts, wanted, strict=True)
    old = np.concatenate([mine[number : number + more] for mine, number, more in parts])
    pixels = np.stack([*(change(images[one], int(labels[one])) for one in new), *images[old]])
    is_new, stratum = np.arange(len(pixels)) < len(new), labels[np.concatenate([new, old])]
    names = [str(number) for number in range(classes)]
    sample = Sample(is_new, stratum, looks.groups_of(is_new, stratum, names))
    values = {"brightness": pixels.mean(axis=(1, 2, 3)), "contrast": pixels.mean(axis=-1).std(axis=(1, 2))}
    columns = {name: looks.ranked(sample, each) for name, each in values.items()}
    tests = classifiers(sample, "plain", looks.plain_features(pixels))
    for group in sample.groups:
        for name, column in columns.items():
            if statistic := looks.mean_of(sample, group, column):
                tests[group, name] = statistic
    found = looks.chances(sample, tests, seed)
    if model:
        held_out = np.concatenate([np.arange(number) < HELD_OUT for number in wanted])
        used = np.concatenate([np.ones(len(new), np.bool_), held_out])
        groups = looks.groups_of(is_new[used], stratum[used], names)
        apart = Sample(is_new[used], stratum[used], groups)
        found |= looks.chances(apart, classifiers(apart, "model", model(pixels[used][..., ::-1])), seed)
    return {group for group, _ in looks.significant(found)}


def classifiers(sample: Sample, name: str, features: looks.Floats) -> dict[Key, Statistic]:
    """Return the test of a classifier in each group."""
    return {(group, name): Classifier(sample, group, features).statistic for group in sample.groups}


def main(folder: str, *run: str) -> None:
    """Print how many of the nights raise an alarm, and for which class."""
    model = features_of(finished_model(open_store(run[0]), run[1])) if run else None
    files = [sorted(one.glob("*.jpg")) for one in sorted(Path(folder).iterdir())]
    images = np.stack([np.asarray(cv2.imread(str(file))) for some in files for file in some])
    labels = np.repeat(np.arange(len(files)), list(map(len, files)))
    nights: dict[str, Change] = {"quiet": lambda image, _: image, "+10 %": brighter, "q60": compressed, "blur": blurred}
    for name, change in nights.items():
        for count in (100, 200, 500):
            times = QUIET // 3 + (count == 200) if name == "quiet" else SHIFTED
            found = [night(images, labels, count, seed, change, model) for seed in range(times)]
            alarms, groups = sum(map(bool, found)), Counter(group or "all" for each in found for group in each)
            sys.stdout.write(f"{name:6} {count:4} new: {alarms} of {times} nights raise an alarm; {dict(groups)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
