"""Computes 95 % intervals of pycocotools' figures by the bootstrap over images.

The percentile interval of Efron and Tibshirani: "An Introduction to the Bootstrap", 1993: draw as many images
as there are, with replacement, a thousand times, and compute the figures of each sample. Images are drawn instead of
people, because the people of an image are found or missed together.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.base.arrays import Floats
from podline.documents import intervals
from podline.documents.intervals import ENDS
from podline.documents.metric import Metric

FIGURES: dict[str, tuple[bool, float | None, int]] = {
    "ap": (True, None, 0),
    "ap50": (True, 0.5, 0),
    "ap75": (True, 0.75, 0),
    "ap_medium": (True, None, 1),
    "ap_large": (True, None, 2),
    "ar": (False, None, 0),
    "ar50": (False, 0.5, 0),
    "ar75": (False, 0.75, 0),
    "ar_medium": (False, None, 1),
    "ar_large": (False, None, 2),
}
"""pycocotools' ten figures in its order, 0…1: name → (is it a precision, its OKS threshold, its range of areas).

They are average precision (AP) and average recall (AR), at one OKS threshold or, for None, as the mean over 0.5, 0.55 …
0.95. The ranges are 0 for all areas, 1 for medium (32² to 96² pixels) and 2 for large.
"""
_AREAS = 3


class _Results(NamedTuple):
    """The results for people in one range of areas, highest score first.

    Attributes:
        images: index of each result's image, (d,).
        right: at each OKS threshold, (t, d): 1 for a result that matches a person, else 0.
        wrong: at each OKS threshold, (t, d): 1 for a false alarm, else 0.
        people: number of people that count in each image, (images,).
    """

    images: npt.NDArray[np.int64]
    right: Floats
    wrong: Floats
    people: npt.NDArray[np.int64]


def figures_within(evaluation: COCOeval, drawn: Mapping[str, Floats]) -> dict[str, Metric]:
    """Return pycocotools' figures with 95 % intervals, by name; ``drawn`` comes from :func:`drawn_figures`."""
    return {name: interval_of(value, drawn[name]) for name, value in figures_of(evaluation).items()}


def figures_of(evaluation: COCOeval) -> dict[str, float]:
    """Return pycocotools' figures by name; leave out figures for sizes that no person has."""
    values = zip(FIGURES, evaluation.stats.tolist(), strict=True)
    return {name: value for name, value in values if value >= 0}


def drawn_figures(evaluation: COCOeval) -> dict[str, Floats]:
    """Return pycocotools' figures of each bootstrap sample of images, by name, (draws,).

    Two evaluations of the same images use the same samples. A sample without people of a figure's size gives NaN;
    without images there are no samples.
    """
    images, thresholds = len(evaluation.params.imgIds), evaluation.params.iouThrs
    areas = [_results(evaluation, area) for area in range(_AREAS)]
    drawn = {name: np.empty(intervals.RESAMPLES if images else 0) for name in FIGURES}
    for draw, times in enumerate(drawn_times(images)):
        measured = [_precision_and_recall(results, times, evaluation.params.recThrs) for results in areas]
        for name, (is_precision, threshold, area) in FIGURES.items():
            by_threshold = measured[area][0 if is_precision else 1]
            chosen = slice(None) if threshold is None else np.isclose(thresholds, threshold)
            drawn[name][draw] = float(by_threshold[chosen].mean())
    return drawn


def drawn_times(images: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield bootstrap samples: how often each sample contains each image, (images,); none without images."""
    rng = np.random.default_rng(0)
    for _ in range(intervals.RESAMPLES if images else 0):
        yield np.bincount(rng.integers(images, size=images), minlength=images)


def interval_of(value: float, drawn: Floats) -> Metric:
    """Return a figure with the 95 % percentile interval of its values in bootstrap samples, (draws,)."""
    low, high = np.quantile(drawn[~np.isnan(drawn)], ENDS).tolist()
    return Metric(value=value, low=low, high=high)


def _results(evaluation: Any, area: int) -> _Results:
    images, thresholds = len(evaluation.params.imgIds), len(evaluation.params.iouThrs)
    in_area = evaluation.evalImgs[area * images : (area + 1) * images]  # the truth has one category
    found = {place: image for place, image in enumerate(in_area) if image is not None}
    people = np.zeros(images, np.int64)
    for place, image in found.items():
        people[place] = np.count_nonzero(image["gtIgnore"] == 0)
    scores = np.concatenate([np.empty(0), *(image["dtScores"] for image in found.values())])
    order = np.argsort(-scores, kind="mergesort")  # like pycocotools: equal scores keep the order of images
    matched, ignored = (
        np.concatenate([np.empty((thresholds, 0)), *(image[name] for image in found.values())], axis=1) > 0
        for name in ("dtMatches", "dtIgnore")
    )
    right, wrong = ((each & ~ignored)[:, order].astype(float) for each in (matched, ~matched))
    places = np.repeat(np.array([*found], np.int64), [len(image["dtScores"]) for image in found.values()])
    return _Results(places[order], right, wrong, people)


def _precision_and_recall(results: _Results, times: npt.NDArray[np.int64], recalls: Floats) -> tuple[Floats, Floats]:
    """Return average precision and recall at each OKS threshold, (t,); NaN without people.

    Image i counts ``times[i]`` times. The figures equal those of ``COCOeval.accumulate`` for a data set with as many
    copies of each image.
    """
    people, weights = times @ results.people, times[results.images]
    if not people:
        unknown = np.full(len(results.right), np.nan)
        return unknown, unknown
    right, wrong = np.cumsum(results.right * weights, axis=1), np.cumsum(results.wrong * weights, axis=1)
    recall, precision = right / people, right / (right + wrong + np.spacing(1))
    # At each recall, the highest precision at this or a higher recall; 0 if the recall is never reached.
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    padded = np.pad(precision, ((0, 0), (0, 1)))
    places = [np.searchsorted(reached, recalls, side="left") for reached in recall]
    averages = np.array([row[place].mean() for row, place in zip(padded, places, strict=True)])
    return averages, recall[:, -1] if recall.shape[1] else np.zeros(len(recall))
