"""Promotion of models of several labels, on drawn scores: what is refused, shown and left open."""

from __future__ import annotations

import numpy as np
import pytest

from podline.documents.promotion import Check
from podline.errors import SettingsError
from podline.kinds.labels.scores import Scores
from podline.promotion.figure import ModelCost, Pair
from podline.promotion.rules import checks_of
from podline.recipes.promotion_settings import PromotionSettings

NAMES = ("rare", "some", "often", "half")
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.random((3_000, 4)) < np.array([0.01, 0.1, 0.3, 0.5])
HARD = RANDOM.normal(size=LABELS.shape)  # the same images are hard for every model


def model(seed: int, skill: float = 2.0, broken: int = -1) -> Scores:
    """Answers of a training; those of one label may be bad."""
    random, skills = np.random.default_rng(seed), np.full(4, skill)
    skills[broken] = 0.5 if broken >= 0 else skill
    logits = LABELS * skills + HARD + 0.6 * random.normal(size=LABELS.shape) - 1
    return Scores.of_logits(logits.astype(np.float32), LABELS, np.full(4, 0.5))


KNOWN = [model(seed) for seed in range(5)]


def checks(candidate: Scores, **settings: object) -> dict[str, Check]:
    costs = (ModelCost(1, 1), ModelCost(1, 1))
    found = checks_of(Pair("labels", KNOWN, candidate, costs, NAMES), PromotionSettings.model_validate(settings))
    return {check.name: check for check in found}


def test_an_equal_model_is_shown_to_be_no_worse() -> None:
    found = checks(model(10))
    assert found["mAP"].after == pytest.approx(model(10).mean_precision().value)
    assert not any(check.refused for check in found.values())
    assert all(check.shown for check in found.values() if check.rule in ("main", "class"))
    assert "rare" not in found, "fewer than 50 test images have it"


def test_a_worse_model_is_refused() -> None:
    assert checks(model(11, skill=1.5))["mAP"].refused


def test_one_broken_label_refuses_a_model() -> None:
    found = checks(model(12, skill=2.4, broken=2))
    assert [name for name, check in found.items() if check.refused and check.rule == "class"] == ["often"]


def test_f1_can_be_guarded_and_nothing_else() -> None:
    assert checks(model(13, skill=1.5), guards=("f1_micro",))["F1 over all labels"].refused
    with pytest.raises(SettingsError, match="got top1, expected a measure of several labels: f1_micro, f1_macro"):
        checks(model(13), guards=("top1",))
