"""Settings of promotion: the error budget, the margins, the assumed spread between seeds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podline.frozen import Frozen

RULES = "podline.rules"
"""Entry points of installed packages that add rules."""

Margin = Literal["auto"] | Annotated[float, Field(ge=0, lt=0.5)]
"""By how much a promoted model may be worse: a number in the figure's own unit, or the smallest that can be shown."""


class PromotionSettings(Frozen):
    """The rules of promotion; see docs/how-to/promote.md.

    A spread is a standard deviation between trainings that differ in their seed alone, beyond what the size of the test
    split explains, where the figure is one half; of a figure r it is ``sqrt(4 r (1 - r))`` times that. It is assumed
    while one training is known, and weighs as much as three trainings afterwards.

    Attributes:
        rate: the error budget of a year of nights: at most this share of recipes that are worse by a margin is promoted
            once, and of equally good ones refused once.
        margin: by how much a promoted model may be worse in the metric that counts; ``auto`` is the smallest that can
            be shown, of a share at most 0.2.
        part_margin: the same of a class or joint.
        calibration: the same of the calibration error; classifiers only.
        spread: standard deviation between seeds of the metric that counts, at a share of one half.
        part_spread: the same of a class's share of right answers, or a joint's of close ones.
        reference: the run of a former champion to compare with; empty: the last one that was shown to be better than
            its predecessor.
        size: the share by which the bytes of the parameters may grow.
        operations: the share by which the multiply-adds for one example may grow.
        tflite: also make a TensorFlow Lite file, which must give the same answers.
        guards: further measures that must not be worse, by name; not of poses.
        seeds: further seeds of the reference that a flow may train for an undecided model.
        seed_minutes: such a training begins only if it is likely to end within so many minutes of the first verdict.
    """

    rate: float = Field(default=0.05, gt=0, lt=0.5)
    margin: Margin = "auto"
    part_margin: Margin = "auto"
    calibration: Margin = "auto"
    spread: float = Field(default=0.005, ge=0, lt=0.5)
    part_spread: float = Field(default=0.02, ge=0, lt=0.5)
    reference: str = ""
    size: float = Field(default=0.1, ge=0)
    operations: float = Field(default=0.1, ge=0)
    tflite: bool = False
    guards: tuple[str, ...] = Field(default=(), exclude_if=lambda guards: not guards)
    seeds: int = Field(default=0, ge=0, le=20, exclude_if=lambda seeds: not seeds)
    seed_minutes: float = Field(default=60.0, gt=0, exclude_if=lambda minutes: minutes == 60)
