"""The champion that candidates are compared with, of a line of champions."""

from __future__ import annotations

import pytest

from podline.documents.champions import Crowned
from podline.errors import SettingsError
from podline.promotion.trainings import reference_of


def crowned(number: int, *, reference: bool = False, run: str = "") -> Crowned:
    values = {"weights_sha256": "", "dataset": "d", "fingerprint": "", "time": number, "token": str(number)}
    champion = {"number": number, "action": "promoted", "run": run or f"run{number}", "reference": reference}
    return Crowned.model_validate(values | champion)


@pytest.mark.parametrize(("references", "number"), [((), 1), ((1,), 1), ((2,), 2), ((1, 2), 2), ((3,), 3)])
def test_the_last_better_champion_is_the_reference_else_the_first(references, number):
    line = [crowned(each, reference=each in references) for each in (1, 2, 3)]
    found = reference_of(line)
    assert found
    assert found.number == number


def test_a_named_champion_is_the_reference_at_its_last_promotion():
    line = [crowned(1, run="a"), crowned(2, run="b", reference=True), crowned(3, run="a"), crowned(4, run="c")]
    found = reference_of(line, "a")
    assert found
    assert found.number == 3
    with pytest.raises(SettingsError, match=r"promotion\.reference: got d, expected a champion: .*a.*b.*c"):
        reference_of(line, "d")


def test_without_champions_there_is_no_reference():
    assert reference_of([]) is None
