"""Defines the settings of promotion: error budget, margins and the assumed spread between seeds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podline.base.frozen import Frozen, omitted

RULES = "podline.rules"
"""The entry-point group of installed packages that add rules."""

Margin = Literal["auto"] | Annotated[float, Field(ge=0)]
"""By how much a promoted model may be worse, in the measure's unit; ``auto``: the smallest detectable decline."""
Spread = Literal["auto"] | Annotated[float, Field(ge=0, lt=0.5)]
"""A standard deviation between seeds; ``auto``: as measured for the kind of task and the number of classes."""


class PromotionSettings(Frozen):
    """The rules of promotion; see docs/how-to/promote.md.

    A spread is the standard deviation of a measure between trainings that differ only in the seed, if the measure is
    one half. It excludes the noise of sampling test examples. For a measure r, the spread is multiplied by
    ``sqrt(4 r (1 - r))``. With one training the spread is used as it is; with more, it has the weight of three
    trainings. ``auto`` is the spread that was measured for the kind of task and the number of classes.

    Attributes:
        rate: the error budget for a year of nights. Of recipes that are worse by a margin, at most this share is
            promoted. Of equally good recipes, at most this share is refused.
        margin: by how much the main metric of a promoted model may be worse, in the metric's unit; ``auto`` is the
            smallest decline that the test split can show, at most 0.2 for a share.
        part_margin: by how much a class or joint may be worse.
        calibration: by how much the calibration error may rise; classifiers only.
        strict: rules that refuse a model even if its main metric is better: ``class``, ``guard``, ``calibration``, or
            the name of a class or measure.
        spread: standard deviation of the main metric between seeds, at a share of one half.
        part_spread: standard deviation between seeds of a class's share of right answers, or of a joint's share of
            close ones.
        reference: the run of a former champion to compare with; empty: the newest one that was better than its
            reference or was promoted with ``--anyway``, else the first.
        size: the share by which the bytes of the parameters may grow.
        operations: the share by which the multiply-adds per example may grow.
        tflite: also write a TensorFlow Lite file, which must give the same answers.
        guards: names of further measures that must not become worse; not for poses.
        seeds: number of further seeds of the reference that a flow may train: after the first champion, or if a model
            is neither promoted nor refused.
        seed_minutes: a flow trains a further seed only if the training is likely to end within this number of minutes
            after the first verdict.
    """

    rate: float = Field(default=0.05, gt=0, lt=0.5)
    margin: Margin = "auto"
    part_margin: Margin = "auto"
    calibration: Margin = "auto"
    strict: tuple[str, ...] = omitted(())
    spread: Spread = "auto"
    part_spread: Spread = "auto"
    reference: str = ""
    size: float = Field(default=0.1, ge=0)
    operations: float = Field(default=0.1, ge=0)
    tflite: bool = False
    guards: tuple[str, ...] = omitted(())
    seeds: int = omitted(2, ge=0, le=20)
    seed_minutes: float = omitted(60.0, gt=0, le=100_000)
