"""Test whether new images look like old ones of the same classes: per class and in total, with Holm's correction.

Numeric quantities are compared by ranks within a class, file formats by counts within a class. So a change in the
shares of classes is not taken for a change in appearance.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, chi2_contingency, mannwhitneyu, rankdata

from podline.base.arrays import Ids
from podline.documents.intervals import holm

LEVEL = 0.02
"""Probability of any false alarm among all tests of one comparison: two in a hundred nights."""
LEAST, MOST_CLASSES = 8, 30
"""Fewest new and fewest old images for a class's own test; largest number of tested classes, most new images first."""
EVERY = ""
"""The key of the group of all images."""

Floats = npt.NDArray[np.floating[Any]]
Key = tuple[str, str]
"""The key of a test: (group, quantity)."""


class Sample(NamedTuple):
    """New and old images of the same classes, as arrays (n,).

    Attributes:
        new: whether each image is new.
        stratum: index of each image's class.
        groups: group → indices of its classes; see :func:`groups_of`.
    """

    new: npt.NDArray[np.bool_]
    stratum: Ids
    groups: Mapping[str, Ids]


def groups_of(new: npt.NDArray[np.bool_], stratum: Ids, names: Sequence[str]) -> dict[str, Ids]:
    """Return the group of all images (key "") and, if there are several classes, groups of one, as class indices.

    Only classes with :data:`LEAST` new and old images have a group, at most :data:`MOST_CLASSES`.
    """
    news, olds = (np.bincount(stratum[side], minlength=len(names)) for side in (new, ~new))
    enough = [
        number for number in np.argsort(-news, kind="stable").tolist() if min(news[number], olds[number]) >= LEAST
    ]
    apart = enough[:MOST_CLASSES] if len(names) > 1 else []
    return {EVERY: np.arange(len(names)), **{names[int(number)]: np.array([number]) for number in apart}}


def p_values(sample: Sample, numbers: Mapping[str, Floats], formats: Sequence[str] = ()) -> dict[Key, float]:
    """Return the p-value of each quantity in each group, without quantities that are constant there.

    Args:
        sample: the sampled images.
        numbers: numeric quantities by name, each (n,); compared by the Mann-Whitney U test.
        formats: file format of each image, compared by Pearson's chi-squared test summed over classes; or empty.
    """
    found, ranks = dict[Key, float](), {name: ranked(sample, values) for name, values in numbers.items()}
    for group, strata in sample.groups.items():
        mine = np.isin(sample.stratum, strata)
        for name, values in ranks.items():
            new, old = values[mine & sample.new], values[mine & ~sample.new]
            if np.ptp(values[mine]):
                found[group, name] = float(mannwhitneyu(new, old, method="asymptotic").pvalue)
        if (p_value := _of_formats(sample, strata, np.array(formats))) is not None:
            found[group, "format"] = p_value
    return found


def ranked(sample: Sample, values: Floats) -> Floats:
    """Return each value's centred rank within its class, divided by the number of images of the class: float64 (n,)."""
    found = np.zeros(len(sample.new))
    for number in np.unique(sample.stratum):
        mine = sample.stratum == number
        ranks = rankdata(values[mine])
        found[mine] = (ranks - ranks.mean()) / len(ranks)
    return found


def _of_formats(sample: Sample, strata: Ids, formats: npt.NDArray[np.str_]) -> float | None:
    """Return the p-value of the formats in some classes; None if no class has two formats and enough images."""
    statistic, degrees = 0.0, 0
    for number in strata.tolist() if len(formats) else ():
        mine = sample.stratum == number
        names, sides = np.unique(formats[mine]), (sample.new, ~sample.new)
        table = [[int((formats[mine & side] == name).sum()) for name in names.tolist()] for side in sides]
        if len(names) > 1 and min(map(sum, table)) >= LEAST:
            tested: Any = chi2_contingency(table)
            statistic, degrees = statistic + float(tested.statistic), degrees + int(tested.dof)
    return float(chi2.sf(statistic, degrees)) if degrees else None


def significant(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the tests with a Holm-corrected p-value of at most ``LEVEL``, with that p-value."""
    return {name: p_value for name, p_value in holm(p_values).items() if p_value <= LEVEL}
