"""Settings of promotion: margins, and the rates of wrong verdicts."""

from __future__ import annotations

from pydantic import Field

from podline.frozen import Frozen


class PromotionSettings(Frozen):
    """The rules of promotion; see docs/promotion.md.

    A spread is a standard deviation between trainings that differ in their seed alone, beyond what the size of the test
    split explains, where the figure is one half; of a figure r it is ``sqrt(4 r (1 - r))`` times that. It is the least
    that is assumed as long as fewer than three such trainings are known, and weighs as much as four of them afterwards.

    Attributes:
        rate: of models that are as good as the champion, at most this share is refused, by all rules together.
        wrong_rate: of models that are worse than the champion by a margin, at most this share is promoted.
        margin: by so much a promoted model may be worse in the metric that counts, where that is one half, and further
            as a spread; more where the test examples cannot show so little, see docs/promotion.md.
        part_margin: likewise, of a class or joint.
        spread: of the metric that counts.
        part_spread: of a class's share of right answers, or a joint's of close ones.
        calibration: by so much the calibration error may be higher; classifiers only.
        size: by this share the bytes of the parameters may grow.
        operations: by this share the multiply-adds for one example may grow.
        tflite: a TensorFlow Lite file is made as well, and must give the same answers.
        guards: measures of installed packages, by name, that must not be worse beyond noise either; classifiers only.
        seeds: a flow that leaves a model undecided trains the champion's recipe with up to so many further seeds, if
            more trainings would decide, and decides again.
        seed_minutes: a further seed is begun only if it is likely to end within so many minutes of the first verdict.
    """

    rate: float = Field(default=0.05, gt=0, lt=0.5)
    wrong_rate: float = Field(default=0.05, gt=0, lt=0.5, exclude_if=lambda rate: rate == 0.05)
    margin: float = Field(default=0.01, ge=0, lt=0.5, exclude_if=lambda margin: margin == 0.01)
    part_margin: float = Field(default=0.05, ge=0, lt=0.5, exclude_if=lambda margin: margin == 0.05)
    spread: float = Field(default=0.005, ge=0, lt=0.5)
    part_spread: float = Field(default=0.02, ge=0, lt=0.5)
    calibration: float = Field(default=0.02, ge=0, lt=1)
    size: float = Field(default=0.1, ge=0)
    operations: float = Field(default=0.1, ge=0)
    tflite: bool = False
    guards: tuple[str, ...] = Field(default=(), exclude_if=lambda guards: not guards)
    seeds: int = Field(default=0, ge=0, le=20, exclude_if=lambda seeds: not seeds)
    seed_minutes: float = Field(default=60.0, gt=0, exclude_if=lambda minutes: minutes == 60)
