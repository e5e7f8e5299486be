from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from metrics_lines import steps_line

from podline.data.order import TrainingOrder
from podline.errors import DivergenceError
from podline.recipes.settings import ExplosionSettings
from podline.training.divergence import Failure, StopOnDivergence
from podline.training.loop import Stretch

USUAL = ExplosionSettings()
ORDER = TrainingOrder(48, 8, 0)


def stretch(step: int, losses: Sequence[float], norms: Sequence[float] | None = None) -> Stretch:
    series = {"loss": np.array(losses, np.float32), "gradient_norm": np.array(norms or [1.0] * len(losses), np.float32)}
    return Stretch(series, seconds=1.0, waiting=0.0, step=step, last=False)


def hook(settings: ExplosionSettings = USUAL, before: Sequence = ()) -> tuple[StopOnDivergence, list]:
    failures: list[Failure] = []

    def explain(failure: Failure) -> str:
        failures.append(failure)
        return "because of a reason"

    return StopOnDivergence(ORDER, settings, before, explain), failures


@pytest.mark.parametrize("loss", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_no_number_ends_the_run_with_its_cause_and_the_norms_before(loss):
    stop, failures = hook()
    stop.after(stretch(9, [1.0, 2.0], [7.0, 8.0]))
    with pytest.raises(DivergenceError) as caught:
        stop.after(stretch(12, [1.0, loss, loss], [9.0, np.nan, 1.0]))
    [failure] = failures
    assert (failure.step, failure.limit) == (10, np.inf)
    assert str(caught.value).splitlines() == [
        f"the loss is {np.float32(loss)} at step 11: batch 5 of 6 in epoch 2, 8 examples",
        "because of a reason",
        "norms of the gradient before it: 7, 8, 9",
    ]


def test_a_gradient_that_is_no_number_is_seen_where_the_loss_still_is_one():
    stop, failures = hook()
    with pytest.raises(DivergenceError, match="the loss is finite, but its gradient's norm is inf at step 2: "):
        stop.after(stretch(3, [1.0, 1.0, np.nan], [1.0, np.inf, 1.0]))
    assert failures[0].step == 1


def explosion(losses: Sequence[float], settings: ExplosionSettings = USUAL) -> list[Failure]:
    """Stretches of two steps each."""
    stop, failures = hook(settings)
    for number, loss in enumerate(losses, start=1):
        try:
            stop.after(stretch(2 * number, [loss, loss]))
        except DivergenceError:
            break
    return failures


def test_a_loss_that_stays_far_above_what_is_usual_has_exploded_where_it_began_to():
    [failure] = explosion([2.0, 1.0, 0.5, 21.0, 30.0, 1e9])
    assert failure.step == 6
    assert failure.limit == 20.0, "ten times the loss of the untrained model"
    assert "the loss has exploded: 1e+09 up to step 12, and for 3 stretches above 20" in failure.what


def test_what_is_no_explosion():
    assert explosion([2.0, *[1e-4] * 50, *[0.1] * 50]) == [], "a trained model's loss may be a thousand times as high"
    assert explosion([2.0, 1.0, 30.0, 30.0, 1.0, 30.0, 30.0, 1.0]) == [], "it came back"
    assert explosion([0.1, *[5.0 * 1.2**n for n in range(20)]], ExplosionSettings(factor=100.0)) == []
    assert explosion([-1.0, -2.0, -3.0, 5.0, 5.0, 5.0]) == [], "ten times a negative loss is nothing"


def test_factor_and_stretches_are_settings():
    assert explosion([2.0, 5.0], ExplosionSettings(factor=2.0, stretches=1))
    assert not explosion([2.0, 5.0], ExplosionSettings(factor=2.0, stretches=2))


def test_a_run_that_goes_on_knows_what_was_usual_before():
    stop, _ = hook(ExplosionSettings(stretches=1), [steps_line(2, 2.0), steps_line(4, 1.0)])
    stop.after(stretch(6, [19.0, 19.0]))
    with pytest.raises(DivergenceError, match=r"norms of the gradient before it: 5, 5, 1, 1\b"):
        stop.after(stretch(8, [21.0, 21.0]))
