"""Epochs, steps and examples into one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podline.data.order import TrainingOrder
from podline.recipes.epochs import Epochs, Place


def test_a_part_of_an_epoch_is_a_part_of_its_steps() -> None:
    changing = Epochs(50, 8, [(2, 16), (3, 4)])  # 6 steps an epoch in the first two, then 3, then 12
    assert [changing.step_at(epoch) for epoch in (0, 0.5, 2, 2.5, 3, 4)] == [0, 3, 12, 13.5, 15, 27]
    assert [changing.steps_of(examples) for examples in (7, 8, 95, 96, 111, 147, 148)] == [0, 1, 11, 12, 12, 15, 16]
    assert changing.place(15 + 25) == Place(5, 1, 12, 4)


@given(
    count=st.integers(20, 100),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    gaps=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    step=st.integers(0, 300),
)
def test_what_is_computed_at_once_is_what_counting_gives(count, sizes, gaps, step) -> None:
    later = [(sum(gaps[: place + 1]), size) for place, size in enumerate(sizes[1:])]
    epochs = Epochs(count, sizes[0], later)
    epoch = batch = examples = 0
    for _ in range(step):
        size = [size for start, size in [(0, sizes[0]), *later] if start <= epoch][-1]
        examples += size
        batch += 1
        if batch == count // size:
            epoch, batch = epoch + 1, 0
    place = epochs.place(step)
    assert (place.epoch, place.batch) == (epoch, batch)
    assert epochs.examples_before(step) == examples
    assert epochs.steps_of(examples) == step
    assert epochs.epoch_at(step) == pytest.approx(epoch + batch / place.batches)
    assert epochs.step_at(epoch + batch / place.batches) == pytest.approx(step)


@pytest.mark.parametrize("size", [51, 0])
def test_a_batch_that_cannot_be_is_refused_wherever_it_is(size) -> None:
    with pytest.raises(ValueError, match=f"batch_size={size} vs 50 examples"):
        Epochs(50, 8, [(1, size)])


def test_batches_of_another_size_still_go_through_every_example_once() -> None:
    order = TrainingOrder(48, 8, seed=3, later_sizes=[(1, 16), (2, 4)])
    seen: dict[int, list[int]] = {}
    for step in range(6 + 3 + 12):
        epoch, ids = order.batch(step)
        seen.setdefault(epoch, []).extend(ids.tolist())
        assert len(ids) == {0: 8, 1: 16, 2: 4}[epoch]
    assert all(sorted(ids) == list(range(48)) for ids in seen.values())
    assert seen[0] == [number for step in range(6) for number in TrainingOrder(48, 8, seed=3).batch(step)[1]]
