"""Order is a function: permutations, batches and draws from integers alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podline.data import order


def test_the_order_never_changes_between_versions() -> None:
    # These very numbers are part of what a run is: if they change, no old run can be continued.
    assert order.permutation(7, "order", 3, 12).tolist() == [7, 3, 6, 1, 11, 10, 2, 9, 4, 8, 5, 0]
    assert order.random_bits(7, "flip", 3, [0, 1]).tolist() == [17515342011749328548, 4033129603276767828]
    assert order.shuffled(7, "shards", 12, np.arange(12)).tolist() == [9, 10, 11, 2, 4, 3, 0, 6, 8, 5, 1, 7]
    places = np.array([0, 1, 999_999_999])
    assert order.shuffled(7, "shards", 10**9, places).tolist() == [364308403, 11968005, 959848053]
    assert order.held_out(7, 12, 0.25).tolist() == [4, 7, 9]


@given(seed=st.integers(0, 2**63), count=st.integers(0, 500), data=st.data())
def test_each_place_of_a_shuffle_has_an_id_of_its_own(seed: int, count: int, data: st.DataObject) -> None:
    ids = order.shuffled(seed, "shards", count, np.arange(count))
    assert sorted(ids.tolist()) == list(range(count))
    places = np.array(data.draw(st.lists(st.sampled_from(range(count)), max_size=5)) if count else [], np.int64)
    assert order.shuffled(seed, "shards", count, places).tolist() == ids[places].tolist()


@pytest.mark.parametrize("count", [2, 5, 10])
def test_every_id_comes_to_every_place_equally_often_and_after_every_other(count: int) -> None:
    shuffles = np.stack([order.shuffled(seed, "x", count, np.arange(count)) for seed in range(2000)])
    at = np.stack([np.bincount(ids, minlength=count) for ids in shuffles.T])
    after = np.bincount(shuffles[:, 0] * count + shuffles[:, 1], minlength=count**2).reshape(count, count)
    pairs = after[~np.eye(count, dtype=bool)]
    for counts, freedom in ((at, (count - 1) ** 2), (pairs, pairs.size - 1)):
        # Chi-squared is more than five standard deviations above its mean once in 100,000, about.
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < freedom + 5 * np.sqrt(2 * freedom)


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


@given(count=st.integers(2, 300), share=st.floats(0, 0.5), seed=st.integers(0, 100), data=st.data())
def test_an_epoch_has_each_example_once_in_whole_batches_and_none_that_is_held_out(
    count: int, share: float, seed: int, data: st.DataObject
) -> None:
    apart = order.held_out(seed, count, share)
    assert len(apart) == round(share * count)
    batch_size = data.draw(st.integers(1, count - len(apart)))
    training = order.TrainingOrder(count, batch_size, seed, apart)
    assert sorted([*training.ids, *apart]) == list(range(count))
    batches = [training.batch(step) for step in range(2 * training.steps_per_epoch)]
    for epoch in (0, 1):
        ids = np.concatenate([batch for of, batch in batches if of == epoch])
        assert len(ids) == training.count // batch_size * batch_size == len(set(ids.tolist()))
        assert not set(ids.tolist()) & set(apart.tolist())


@settings(deadline=None, max_examples=40)  # a busy machine is no bug
@given(count=st.integers(2, 200), seed=st.integers(0, 2**63), share=st.floats(0, 0.5))
def test_the_order_of_many_examples_has_each_once_and_no_array_of_them(count: int, seed: int, share: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(order, "_SORTED", 1)
        apart = order.held_out(seed, count, share)
        assert len(set(apart.tolist())) == round(share * count)
        training = order.TrainingOrder(count, 1, seed, apart)
        epochs = [
            [int(training.batch(step)[1][0]) for step in range(training.count * e, training.count * (e + 1))]
            for e in (0, 1)
        ]
        parts = [order.part_of(count, part, 3) for part in range(3)]
    assert [sorted(ids) for ids in epochs] == 2 * [training.ids.tolist()]
    assert training.count < 30 or epochs[0] != epochs[1]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))


def test_epochs_of_a_billion_examples_share_nothing_and_take_no_memory() -> None:
    tracemalloc.start()
    training = order.TrainingOrder(10**9, 1024, seed=5)
    steps = training.steps_per_epoch
    batches = np.stack([training.batch(step)[1] for step in (*range(100), *range(steps, steps + 100))]) / 10**9
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    one, other = batches[:100].ravel(), batches[100:].ravel()
    for ids in (one, other):
        counts = np.bincount((ids * 100).astype(int), minlength=100)
        assert ((counts - 1024) ** 2 / 1024).sum() < 99 + 5 * np.sqrt(2 * 99)
    for left, right in ((one, other), (one[1:], one[:-1]), (one[1024:], one[:-1024])):
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / np.sqrt(len(left))


@pytest.mark.parametrize("batch_size", [0, 11])
def test_a_batch_that_cannot_be_names_both_values(batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={batch_size} vs 10 examples"):
        order.TrainingOrder(10, batch_size, seed=0)


def test_what_is_held_out_depends_on_the_seed_and_grows_with_the_share() -> None:
    assert order.held_out(8, 120, 0.25).tolist() != order.held_out(7, 120, 0.25).tolist()
    # A larger share holds the same examples and more.
    assert set(order.held_out(7, 120, 0.1)) < set(order.held_out(7, 120, 0.2))


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any), seed=st.integers(0, 2**63), data=st.data()
)
def test_a_balanced_epoch_has_equally_many_of_each_class_and_a_run_equally_many_of_each_example(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    plain = order.TrainingOrder(len(labels), data.draw(st.integers(1, len(labels))), seed)
    made = plain.balanced(labels)
    assert made.steps_per_epoch == plain.steps_per_epoch
    whole = order.TrainingOrder(len(labels), len(labels), seed).balanced(labels)  # a batch is an epoch
    seen: list[int] = []
    for epoch in range(5):
        ids = whole.batch(epoch)[1]
        records = whole.records(ids)
        counts = np.bincount(labels[records], minlength=len(sizes))[np.array(sizes) > 0]
        assert counts.max() - counts.min() <= 1
        assert len(set(ids.tolist())) == len(ids)  # repeats have other ids, and so other draws
        seen += records.tolist()
    times = np.bincount(seen, minlength=len(labels))
    for label in np.unique(labels):
        of_class = times[labels == label]
        assert of_class.max() - of_class.min() <= 1


@pytest.mark.parametrize("balanced", [False, True])
def test_a_batch_is_a_function_of_its_step_and_skips_what_is_held_out(balanced: bool) -> None:
    labels = np.repeat([0, 1, 2], [80, 15, 5])
    apart = order.held_out(1, 100, 0.2)

    def made() -> order.TrainingOrder:
        plain = order.TrainingOrder(100, 7, 1, apart)
        return plain.balanced(labels[plain.ids]) if balanced else plain

    steps = [made().batch(step)[1].tolist() for step in range(40)]
    again = made()
    assert [again.batch(step)[1].tolist() for step in reversed(range(40))] == steps[::-1]
    assert not set(again.records(np.concatenate(steps)).tolist()) & set(apart.tolist())
