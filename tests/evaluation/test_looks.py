"""Permutation tests of looks: other shares of the classes are no change, and alarms are as rare as they say."""

from __future__ import annotations

import numpy as np

from podline.evaluation import looks
from podline.evaluation.looks import EVERY, Classifier, Sample

NAMES = ["dark", "bright"]


def sample_of(new: tuple[int, int], old: tuple[int, int]) -> Sample:
    """Return so many new and old images of each class."""
    stratum = np.repeat([0, 1, 0, 1], [*new, *old])
    is_new = np.arange(len(stratum)) < sum(new)
    return Sample(is_new, stratum, looks.groups_of(is_new, stratum, NAMES))


def chances_of(sample: Sample, values: np.ndarray, seed: int = 0) -> dict[str, float]:
    tests = {(group, "x"): looks.mean_of(sample, group, looks.ranked(sample, values)) for group in sample.groups}
    found = looks.chances(sample, {key: test for key, test in tests.items() if test}, seed)
    return {group: chance for (group, _), chance in found.items()}


def test_other_shares_of_classes_are_no_change_and_a_shift_of_one_class_is_its_own() -> None:
    sample, chance = sample_of((5, 60), (200, 40)), np.random.default_rng(1)
    values = 100.0 * sample.stratum + chance.normal(size=len(sample.new))
    assert list(sample.groups) == [EVERY, "bright"]  # of the other class there are too few new images
    assert min(chances_of(sample, values).values()) > 0.05
    shifted = values + 1.5 * (sample.new & (sample.stratum == 1))
    found = chances_of(sample, shifted)
    assert found["bright"] < 0.001
    assert found[EVERY] < 0.001


def test_a_chance_is_as_rare_as_it_says() -> None:
    sample = sample_of((12, 8), (30, 30))
    found = []
    for seed in range(60):
        values = np.random.default_rng(seed).integers(0, 5, len(sample.new)).astype(float)  # many are equal
        found.append(chances_of(sample, values, seed)[EVERY])
    # Uniform: of 60, one below 0.001 has a probability of 6 %; ten below 0.05 one of 0.1 %.
    assert np.mean(found) > 0.4
    assert sum(chance <= 0.05 for chance in found) < 10


def test_the_classifier_is_judged_on_images_that_it_does_not_know() -> None:
    sample, chance = sample_of((40, 40), (80, 80)), np.random.default_rng(3)
    noise = chance.normal(size=(len(sample.new), 300))  # more values than images: by heart all can be told apart
    assert abs(Classifier(sample, EVERY, noise).error() - 0.5) < 0.12  # three deviations of so many images
    noise[:, 0] += 4 * sample.new
    assert Classifier(sample, EVERY, noise).error() < 0.35


def test_a_rare_format_is_no_alarm_by_itself() -> None:
    sample = sample_of((40, 40), (500, 500))
    formats = [".jpg"] * len(sample.new)
    formats[0] = ".png"
    test = looks.mean_of(sample, EVERY, looks.indicated(sample, formats))
    assert test is not None
    [found] = looks.chances(sample, {(EVERY, "format"): test}, 0).values()
    assert 0.04 < found < 0.11  # 40 of 540 images of its class are new
