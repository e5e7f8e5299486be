from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podline.training.tracing import MOST, Culprits, find_culprits


@given(st.integers(9, 200), st.data())
def test_exactly_those_that_fail_by_themselves_are_found_in_few_tries(count, data):
    poisoned = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    tries = 0

    def fails(places) -> bool:
        nonlocal tries
        tries += 1
        return not poisoned.isdisjoint(places)

    assert find_culprits(count, fails) == Culprits(tuple(sorted(poisoned)))
    assert tries <= 8 + 2 * len(poisoned) * count.bit_length()


def test_where_each_one_fails_none_is_the_cause():
    assert find_culprits(1000, lambda places: True) == Culprits(all_fail=True)


def test_where_only_many_together_fail_none_is_found():
    assert find_culprits(64, lambda places: len(places) > 16) == Culprits()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_batches(count):
    assert find_culprits(count, lambda places: True).all_fail
    assert find_culprits(count + 1, lambda places: 0 in places) == Culprits((0,))


def test_a_search_ends_when_it_has_found_many():
    found = find_culprits(1000, lambda places: any(place % 10 < 3 and place > 100 for place in places))
    assert len(found.places) == MOST
