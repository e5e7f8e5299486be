"""A class of time that took more than in earlier nights is named; chance is not."""

from __future__ import annotations

import pytest

from podline.ledger.slowness import losses
from podline.ledger.time_spent import LOSSES, loss_in_words

USUAL = [{"steps": 500.0 + number, "store": 20.0 + 10 * number, "saving": 40.0} for number in range(7)]


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({"steps": 900.0, "store": 50.0}, []),
        ({"store": 220.0}, []),  # within six standard deviations of 50 ± 30
        ({"store": 230.0}, ["waiting for the store: 3 min 50 s, usually 50 s in the last 7 nights"]),
        ({"lost": 20.0}, []),  # less than a twentieth of a night
        ({"lost": 60.0}, ["work that a failure or a kill lost: 1 min, none in the last 7 nights"]),
    ],
)
def test_what_took_more_than_usual_is_named(spent: dict[str, float], words: list[str]):
    assert [loss_in_words(loss) for loss in losses(spent, USUAL, LOSSES)] == words


def test_two_nights_say_nothing():
    assert losses({"lost": 1000.0}, USUAL[:2], LOSSES) == []
