"""The settings of promotion: the error budget, the margins, the assumed spread between seeds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podline.base.frozen import Frozen

RULES = "podline.rules"
"""The entry-point group of installed packages that add rules."""

Margin = Literal["auto"] | Annotated[float, Field(ge=0)]
"""The largest loss of a promoted model: a number in the figure's unit, or the smallest loss that can be shown."""
Spread = Literal["auto"] | Annotated[float, Field(ge=0, lt=0.5)]
"""A standard deviation between seeds: a number, or one that was measured for the kind and the number of classes."""


class PromotionSettings(Frozen):
    """The rules of promotion; see docs/how-to/promote.md.

    A spread is the standard deviation between trainings that differ only in the seed, without the luck of single
    answers, for a figure of one half; for a figure r it is multiplied by ``sqrt(4 r (1 - r))``. It is used while one
    training is known, and later counts as much as three trainings; ``auto`` is what was measured for the kind and the
    number of classes.

    Attributes:
        rate: the error budget for a year of nights: the largest share of recipes worse by a margin that is promoted
            once, and of equally good recipes that is refused once.
        margin: the largest loss of a promoted model in the main metric, in its unit; ``auto`` is the smallest loss that
            can be shown, at most 0.2 for a share.
        part_margin: the largest loss of a class or joint.
        calibration: the largest rise of the calibration error; classifiers only.
        strict: rules and figures that refuse even a model whose main metric is better: ``class``, ``guard``,
            ``calibration``, or the name of a class or measure.
        spread: standard deviation of the main metric between seeds, at a share of one half.
        part_spread: standard deviation of a class's share of right answers, or a joint's of close ones.
        reference: the run of a former champion to compare with; empty: the last champion that was shown to be better
            than its predecessor.
        size: the share by which the bytes of the parameters may grow.
        operations: the share by which the multiply-adds per example may grow.
        tflite: also write a TensorFlow Lite file, which must give the same answers.
        guards: further measures that must not become worse, by name; not for poses.
        seeds: number of further seeds of the reference that a flow may train: after the first champion, and for an
            undecided model.
        seed_minutes: a further seed is only trained if it is likely to end within this number of minutes after the
            first verdict.
    """

    rate: float = Field(default=0.05, gt=0, lt=0.5)
    margin: Margin = "auto"
    part_margin: Margin = "auto"
    calibration: Margin = "auto"
    strict: tuple[str, ...] = Field(default=(), exclude_if=lambda strict: not strict)
    spread: Spread = "auto"
    part_spread: Spread = "auto"
    reference: str = ""
    size: float = Field(default=0.1, ge=0)
    operations: float = Field(default=0.1, ge=0)
    tflite: bool = False
    guards: tuple[str, ...] = Field(default=(), exclude_if=lambda guards: not guards)
    seeds: int = Field(default=2, ge=0, le=20, exclude_if=lambda seeds: seeds == 2)
    seed_minutes: float = Field(default=60.0, gt=0, le=100_000, exclude_if=lambda minutes: minutes == 60)
