"""Order is a function: permutations, batches and draws from integers alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podline.data import order


@given(seed=st.integers(0, 2**63), epoch=st.integers(0, 10_000), count=st.integers(0, 500))
def test_a_permutation_has_every_id_once(seed: int, epoch: int, count: int) -> None:
    assert sorted(order.permutation(seed, "order", epoch, count).tolist()) == list(range(count))


def test_the_order_never_changes_between_versions() -> None:
    # These very numbers are part of what a run is: if they change, no old run can be continued.
    assert order.permutation(7, "order", 3, 12).tolist() == [7, 3, 6, 1, 11, 10, 2, 9, 4, 8, 5, 0]
    assert order.random_bits(7, "flip", 3, [0, 1]).tolist() == [17515342011749328548, 4033129603276767828]


def test_seeds_epochs_and_purposes_share_nothing() -> None:
    orders = [
        tuple(order.permutation(seed, purpose, epoch, 100))
        for seed in (0, 1)
        for epoch in (0, 1)
        for purpose in ("order", "flip")
    ]
    assert len(set(orders)) == 8


def test_draws_depend_on_the_id_and_not_on_its_place() -> None:
    ids = np.arange(1000)
    shuffled = order.permutation(0, "test", 0, 1000)
    assert np.array_equal(
        order.random_uniform(5, "flip", 2, ids)[shuffled], order.random_uniform(5, "flip", 2, ids[shuffled])
    )


def test_draws_are_uniform_and_independent() -> None:
    draws = order.random_uniform(0, "flip", 0, np.arange(100_000))
    other = order.random_uniform(0, "flip", 1, np.arange(100_000))
    assert draws.min() >= 0
    assert draws.max() < 1
    # Five standard errors: 5 / sqrt(12 n) for the mean, 5 / sqrt(n) for the correlation.
    assert abs(draws.mean() - 0.5) < 5 / np.sqrt(12 * 100_000)
    assert abs(np.corrcoef(draws, other)[0, 1]) < 5 / np.sqrt(100_000)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 5 / np.sqrt(100_000)
    counts = np.bincount(order.random_below(0, "shift", 0, np.arange(90_000), 9), minlength=9)
    # Chi-squared with 8 degrees of freedom is above 38 once in 100,000.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 38
    assert len(counts) == 9


@given(count=st.integers(1, 200), data=st.data())
def test_an_epoch_has_no_example_twice_and_each_batch_is_whole(count: int, data: st.DataObject) -> None:
    batch_size = data.draw(st.integers(1, count))
    training = order.TrainingOrder(count, batch_size, seed=3)
    batches = [training.batch(step) for step in range(2 * training.steps_per_epoch)]
    for epoch in (0, 1):
        ids = np.concatenate([batch for of, batch in batches if of == epoch])
        assert len(ids) == training.steps_per_epoch * batch_size == len(set(ids.tolist()))


def test_a_step_is_the_same_whatever_came_before() -> None:
    steps = [order.TrainingOrder(100, 7, seed=1).batch(step)[1].tolist() for step in range(40)]
    training = order.TrainingOrder(100, 7, seed=1)
    for step in (39, 3, 20, 0, 14, 13):
        assert training.batch(step)[1].tolist() == steps[step]


@pytest.mark.parametrize("batch_size", [0, 11])
def test_a_batch_that_cannot_be_names_both_values(batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={batch_size} vs 10 examples"):
        order.TrainingOrder(10, batch_size, seed=0)


@given(count=st.integers(20, 300), share=st.floats(0.05, 0.5), seed=st.integers(0, 100))
def test_what_is_held_out_is_never_in_a_batch_and_all_else_is(count: int, share: float, seed: int) -> None:
    apart = order.held_out(seed, count, share)
    assert len(apart) == round(share * count)
    training = order.TrainingOrder(count, 2, seed, apart)
    seen = {number for step in range(training.steps_per_epoch) for number in training.batch(step)[1].tolist()}
    assert not seen & set(apart.tolist())
    assert sorted([*training.ids, *apart]) == list(range(count))
    assert len(seen) == training.count // 2 * 2


def test_what_is_held_out_depends_on_the_seed_and_never_changes_between_versions() -> None:
    assert order.held_out(7, 12, 0.25).tolist() == [4, 7, 9]
    assert order.held_out(8, 120, 0.25).tolist() != order.held_out(7, 120, 0.25).tolist()
    # A larger share holds the same examples and more.
    assert set(order.held_out(7, 120, 0.1)) < set(order.held_out(7, 120, 0.2))


def test_nothing_held_out_is_the_order_without_it() -> None:
    plain, empty = order.TrainingOrder(50, 8, 3), order.TrainingOrder(50, 8, 3, np.empty(0, np.int64))
    assert all(np.array_equal(plain.batch(step)[1], empty.batch(step)[1]) for step in range(12))
