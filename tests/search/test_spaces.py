"""Spaces of a search: how they are written, and what they refuse."""

from __future__ import annotations

import pytest

from podline.errors import SettingsError
from podline.recipes import registry
from podline.search.spaces import Space, spaces_of

MNIST = registry.get("mnist")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schedule.learning_rate=log:1e-4..1", Space(path="schedule.learning_rate", low=1e-4, high=1, log=True)),
        ("learning_rate=.01..0.5", Space(path="schedule.learning_rate", low=0.01, high=0.5)),
        ("model.width=0.5,1", Space(path="model.width", choices=(0.5, 1))),
        ("optimizer.kind=sgd, adam,sgd", Space(path="optimizer.kind", choices=("sgd", "adam"))),
        ("augmentation.flip=true,false", Space(path="augmentation.flip", choices=(True, False))),
        ("batch_size=log:16..256", Space(path="batch_size", low=16, high=256, log=True)),
    ],
)
def test_a_space_is_what_is_written(text: str, expected: Space) -> None:
    assert spaces_of([text], MNIST) == (expected,)


def test_a_range_between_whole_numbers_holds_whole_numbers() -> None:
    whole, real = spaces_of(["batch_size=16..256", "model.width=0.5..2"], MNIST)
    assert (whole.whole, real.whole) == (True, False)
    assert real.rounded(1.23456789) == 1.235
    assert Space(path="x", low=0.0, high=0.99996).rounded(0.999959) == 0.99996


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "got no value to search over"),
        (("schedule.learning_rate",), "got no space"),
        (("schedule.learning_rate=0.1",), "got no space"),
        (("schedule.learning_rate=log:0..1",), "got no space"),
        (("schedule.learning_rate=log:0.1,1",), "got no space"),
        (("optimizer.kind=sgd..adam",), "got no space"),
        (("schedule.learning_rate=1..0.1",), "got 1 to 0.1, expected the lower end first"),
        (("model.width=0.5,1", "model.width=1..2"), "names model.width twice"),
        (("schedule.rate=0.1..1",), "a recipe has no 'schedule.rate'"),
        (("model=0.5..2",), r"model\.kind = 0\.5"),
        (("model.width=0..2",), r"model\.width = 0"),
        (("batch_size=8.5..100.5",), r"batch_size = 8\.5"),
        (("optimizer.kind=sgd,adma",), "adma"),
    ],
)
def test_what_cannot_be_a_space_is_refused_in_one_line(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        spaces_of(texts, MNIST)
    assert "\n" not in str(refused.value)
