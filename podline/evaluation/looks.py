"""Tests whether new images look like old ones: permutation tests by class and in total, with Holm's correction.

Permutations exchange new and old images within a stratum, which is a class. So changed shares of classes do not count
as changed looks, and the rate of false alarms is exact for any values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from scipy.fft import dct
from scipy.stats import rankdata

from podline.intervals import holm

LEVEL = 0.02
"""The probability of any false alarm among all tests of a comparison: two in a hundred nights."""
LEAST, MOST_CLASSES = 8, 30
"""The number of new and of old images that a class needs for its own test; classes with most new images are tested."""
EVERY = ""
"""The group of all images."""
_DEALS, _AT_ONCE, _ENOUGH = 10_000, 1_000, 20
_ROUNDING = 1e-5  # relative tolerance within which statistics count as equal
_BLOCK = 8  # pixels of a side, as in JPEG files
_RIDGE = 10.0  # times the mean square length of the features

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Key = tuple[str, str]
"""A test: its group and its quantity."""
Statistic = Callable[[Floats], Floats]
"""A function from columns of :func:`as_they_are`, (n, columns), to values that grow with the difference, (columns,)."""


class Sample(NamedTuple):
    """New and old images of the same classes.

    Attributes:
        new: whether each image is new, (n,).
        stratum: number of the class of each image.
        groups: strata of each tested group; see :func:`groups_of`.
    """

    new: npt.NDArray[np.bool_]
    stratum: Ids
    groups: Mapping[str, Ids]


def groups_of(new: npt.NDArray[np.bool_], stratum: Ids, names: Sequence[str]) -> dict[str, Ids]:
    """Return the group of all images, and each class with enough images, by name."""
    news, olds = (np.bincount(stratum[side], minlength=len(names)) for side in (new, ~new))
    enough = [
        number for number in np.argsort(-news, kind="stable").tolist() if min(news[number], olds[number]) >= LEAST
    ]
    apart = enough[:MOST_CLASSES] if len(names) > 1 else []
    return {EVERY: np.arange(len(names)), **{names[int(number)]: np.array([number]) for number in apart}}


def ranked(sample: Sample, values: npt.ArrayLike) -> Floats:
    """Return numbers as centred ranks within each stratum, with van Elteren's weights for strata of any size."""
    found = np.zeros(len(sample.new))
    for number in np.unique(sample.stratum):
        mine = sample.stratum == number
        ranks = rankdata(np.asarray(values)[mine])
        found[mine] = (ranks - ranks.mean()) / (len(ranks) + 1)
    return found[:, np.newaxis]


def indicated(sample: Sample, values: Sequence[str]) -> Floats:
    """Return names as columns, one for each name, centred within each stratum."""
    columns = np.asarray(values)[:, np.newaxis] == np.unique(values)
    return centred(sample, columns.astype(float))


def centred(sample: Sample, values: Floats) -> Floats:
    """Subtract the mean of each stratum from values, (n, values)."""
    counts = np.maximum(np.bincount(sample.stratum), 1)
    means = [np.bincount(sample.stratum, column) / counts for column in values.T]
    return values - np.stack(means, axis=1).astype(values.dtype)[sample.stratum]


def plain_features(images: npt.NDArray[np.uint8]) -> Floats:
    """Return features of images (n, height, width, channels) without a model, (n, values).

    They are the logarithms of the energies at JPEG's frequencies, in blocks of 8 pixels, which blur, noise and
    compression change; and the mean colours in 4 × 4 parts of an image.
    """
    count, height, width, _ = images.shape
    rows, columns = height // _BLOCK, width // _BLOCK
    grey = images[:, : rows * _BLOCK, : columns * _BLOCK].mean(axis=-1, dtype=np.float32)
    blocks = grey.reshape(count, rows, _BLOCK, columns, _BLOCK).swapaxes(2, 3)
    waves = np.asarray(dct(dct(blocks, axis=-1, norm="ortho"), axis=-2, norm="ortho"))
    energies = (waves**2).mean(axis=(1, 2))
    colours = [cv2.resize(image, (4, 4), interpolation=cv2.INTER_AREA).ravel() for image in images]
    return np.concatenate([np.log(energies.reshape(count, -1) + 1), np.array(colours, float)], axis=1)


class Classifier:
    """Ridge regression that separates new from old images; each image is scored by a fit to all others of its group.

    Args:
        sample: the sample of images.
        group: name of the group.
        features: features of all images, (n, values).
    """

    def __init__(self, sample: Sample, group: str, features: Floats) -> None:
        self._sample = sample
        self._mine = np.flatnonzero(np.isin(sample.stratum, sample.groups[group]))
        known = centred(sample, features)[self._mine]
        known /= known.std(axis=0) + 1e-9
        damped = known.T @ known + _RIDGE * np.size(known) / len(known) * np.eye(known.shape[1])
        weights = np.linalg.solve(damped, known.T)
        own = (known * weights.T).sum(axis=1, keepdims=True)
        self._parts = tuple(part.astype(np.float32) for part in (known, weights, own))

    def statistic(self, new: Floats) -> Floats:
        """Return by how much the scores of new images are higher; see :data:`Statistic`."""
        target = new[self._mine]
        return (self._scores(target) * target).sum(axis=0)

    def error(self) -> float:
        """Return the share of misclassified images, with equal weight for new and old; 0.5 is chance."""
        scores, new = self._scores(as_they_are(self._sample)[self._mine])[:, 0], self._sample.new[self._mine]
        return float((scores[new] <= 0).mean() + (scores[~new] > 0).mean()) / 2

    def _scores(self, target: Floats) -> Floats:
        """Return each image's leave-one-out score, in closed form, so that a permutation costs two small products."""
        known, weights, own = self._parts
        return (known @ (weights @ target) - own * target) / (1 - own)


def mean_of(sample: Sample, group: str, values: Floats) -> Statistic | None:
    """Return the statistic that compares the mean of new images' values with old ones'; None for constant values.

    Args:
        sample: the sample of images.
        group: name of the group.
        values: values of :func:`ranked` or :func:`indicated`.
    """
    mine = np.isin(sample.stratum, sample.groups[group])[:, np.newaxis] * values
    scale = np.sqrt((mine**2).sum(axis=0))
    if not scale.any():
        return None
    weights = (mine / np.where(scale, scale, 1)).T.astype(np.float32)
    return lambda new: ((weights @ new) ** 2).sum(axis=0)


def as_they_are(sample: Sample) -> Floats:
    """Return the column of new images, minus the share of new images in its stratum."""
    return centred(sample, sample.new[:, np.newaxis].astype(np.float32))


def significant(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Return the tests that chance does not explain, with their corrected p-values."""
    return {name: chance for name, chance in holm(chances).items() if chance <= LEVEL}


def chances(sample: Sample, statistics: Mapping[Key, Statistic], seed: int) -> dict[Key, float]:
    """Return the p-value of each test: how often a permutation's statistic reaches that of the real images.

    Args:
        sample: the sample of images.
        statistics: statistic of each test.
        seed: seed of the permutations.
    """
    strata = [np.flatnonzero(sample.stratum == one) for one in np.unique(sample.stratum)]
    random, own = np.random.default_rng(seed), as_they_are(sample)
    as_it_is = {key: float(one(own)[0]) for key, one in statistics.items()}
    reached = {key: value - _ROUNDING * abs(value) for key, value in as_it_is.items()}
    as_much, found = dict.fromkeys(statistics, 0), dict[Key, float]()
    for dealt in range(_AT_ONCE, _DEALS + 1, _AT_ONCE):
        new = np.empty((len(own), _AT_ONCE), np.float32)
        for mine in strata:
            new[mine] = random.permuted(np.tile(own[mine, 0], (_AT_ONCE, 1)), axis=1).T
        for key, reaching in as_much.items():
            if reaching < _ENOUGH:  # Besag and Clifford: "Sequential Monte Carlo p-values", Biometrika 1991
                as_much[key] += int((statistics[key](new) >= reached[key]).sum())
                found[key] = (1 + as_much[key]) / (1 + dealt)
    return found
