"""Mixes pairs of examples: mixup and CutMix.

A mixed batch also has the targets of the partners, and each example's share, at least a half. The loss of an example is
share × loss of its own target + (1 - share) × loss of its partner's.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Arrays, Floats
from podline.data.records import IMAGE
from podline.input.chance import Chance
from podline.recipes.settings import AugmentationSettings

SHARE = "share of image"
"""The field of an example's own share of its image: float32, (n,)."""


def partners_field(target: str) -> str:
    """Return the name of the field with the partners' values of a target."""
    return f"partner {target}"


def mixed(arrays: Arrays, partners: Arrays, settings: AugmentationSettings, chance: Chance) -> dict[str, Array]:
    """Mix examples with their partners by mixup or CutMix; if both are on, choose at random for each pair.

    Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", 2018. Yun et al.: "CutMix", 2019.

    Args:
        arrays: an augmented batch, (n, …) per field; not changed.
        partners: the same fields of the partners.
        settings: settings with ``mixup`` or ``cutmix``.
        chance: the random draws of the examples.

    Returns:
        The fields with mixed images, the partners' targets, and the field :data:`SHARE`.
    """
    own, other = arrays[IMAGE], partners[IMAGE]
    made, shares = np.empty_like(own), np.empty(len(own))
    cuts = (
        chance.below("cutmix", 2) == 1 if settings.mixup and settings.cutmix else np.full(len(own), settings.cutmix > 0)
    )
    if settings.mixup:
        shares[:] = _draw_shares(chance.named("mixup "), settings.mixup)
        for place in np.flatnonzero(~cuts):
            blended = cv2.addWeighted(own[place], shares[place], other[place], 1 - shares[place], 0)
            made[place] = blended.reshape(own[place].shape)
    if settings.cutmix:
        drawn = _draw_shares(chance.named("cutmix "), settings.cutmix)
        covered = rectangles(np.sqrt(1 - drawn), np.sqrt(1 - drawn), chance.named("cutmix "), own.shape)
        made[cuts] = np.where(covered[cuts, ..., None], other[cuts], own[cuts])
        shares[cuts] = 1 - covered[cuts].mean(axis=(1, 2))
    targets = {partners_field(name): values for name, values in partners.items() if name != IMAGE}
    return dict(arrays) | {IMAGE: made} | targets | {SHARE: shares.astype(np.float32)}


def captions(arrays: Arrays, words: Callable[[Arrays], list[str]]) -> list[str]:
    """Return a caption for each example with its targets; for mixed examples, both targets with their shares."""
    own = words(arrays)
    if SHARE not in arrays:
        return own
    others = words({name: arrays[partner] for name in arrays if (partner := partners_field(name)) in arrays})
    return [
        f"{100 * share:.0f} % {ours}\n{100 - 100 * share:.0f} % {theirs}"
        for share, ours, theirs in zip(arrays[SHARE].tolist(), own, others, strict=True)
    ]


def rectangles(heights: Floats, widths: Floats, chance: Chance, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return masks (n, height, width) of rectangles with centres anywhere in images of a shape, (n, height, width, …).

    ``heights`` and ``widths``, (n,), are shares of the image's; parts outside the image are cut off.
    """
    sides = []
    for purpose, size, shares in (("row", shape[1], heights), ("column", shape[2], widths)):
        lengths = (shares * size).astype(np.int64)
        first = (chance.below(purpose, size) - lengths // 2)[:, None]
        sides.append((np.arange(size) >= first) & (np.arange(size) < first + lengths[:, None]))
    rows, columns = sides
    return rows[:, :, None] & columns[:, None, :]


def _draw_shares(chance: Chance, alpha: float) -> Floats:
    """Draw the larger of x and 1 - x for each example, x from Beta(alpha, alpha), float64, (n,).

    Devroye: "Random variate generation in one line of code", WSC 1996, for symmetric beta distributions.
    """
    power = chance.between("radius", 0, 1) ** (1 / alpha)
    cosine = np.cos(2 * np.pi * chance.between("angle", 0, 1))
    return 0.5 + 0.5 * np.abs(cosine) * np.sqrt((1 - power) / (power + (1 - power) * cosine**2))
