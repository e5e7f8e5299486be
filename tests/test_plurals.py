from __future__ import annotations

import pytest

from podline.plurals import plural
from podline.stages.specs import ValidateResult


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (2_193, "2,193 records")]
)
def test_one_is_singular(number: int, words: str) -> None:
    assert plural(number, "record") == words


def test_some_nouns_are_their_own() -> None:
    assert (plural(1, "person", "people"), plural(3, "person", "people")) == ("1 person", "3 people")


def test_a_data_set_of_one_record_is_told_in_the_singular() -> None:
    result = ValidateResult(records=1, shards=1, duplicates_within=0)
    assert result.lines() == ["as the manifest says: 1 record in 1 shard"]
