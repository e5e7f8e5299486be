from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

from podline.input.buffers import Buffers

SHAPE, DTYPE = (16, 32, 3), np.dtype(np.uint8)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_that_nobody_looks_at_is_used_again():
    buffers = Buffers()
    array = buffers.empty(SHAPE, DTYPE)
    first = address(array)
    del array
    assert address(buffers.empty(SHAPE, DTYPE)) == first


@pytest.mark.parametrize(
    "look",
    [lambda array: array, lambda array: array[3:4, 1], lambda array: array.view(np.int8), memoryview, tf.constant],
)
def test_memory_that_somebody_looks_at_is_left_alone(look):
    buffers = Buffers()
    array = buffers.empty(SHAPE, DTYPE)
    array[:] = 7
    seen = look(array)
    before = np.array(seen)
    del array
    for _ in range(3):
        buffers.empty(SHAPE, DTYPE)[:] = 9
    assert np.array_equal(seen, before)


def test_a_tensor_keeps_the_memory_that_it_was_made_of():
    buffers = Buffers()

    def filled(value: np.ndarray) -> np.ndarray:
        array = buffers.empty(SHAPE, DTYPE)
        array[:] = value
        return array

    numbers = tf.data.Dataset.range(40).map(lambda n: tf.numpy_function(filled, [n], tf.uint8, stateful=False))
    held = list(numbers)
    gc.collect()
    assert [np.unique(tensor).tolist() for tensor in held] == [[value] for value in range(40)]
    assert [int(tensor[0, 0, 0]) for tensor in numbers] == list(range(40))


def test_arrays_are_what_was_asked_for_and_lie_where_tensorflow_wants_them():
    buffers = Buffers()
    for dtype in (np.uint8, np.int64, np.float32):
        array = buffers.empty((5, 3), np.dtype(dtype))
        assert (array.shape, array.dtype, array.flags.c_contiguous) == ((5, 3), dtype, True)
        assert address(array) % 64 == 0
    assert address(buffers.empty((5, 3), DTYPE)) != address(buffers.empty((6, 3), DTYPE))


def test_threads_never_get_the_same_memory_at_once():
    buffers, wrong = Buffers(), []

    def work(value: int) -> None:
        for _ in range(300):
            array = buffers.empty(SHAPE, DTYPE)
            array[:] = value
            if not (array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_beyond_what_is_kept_memory_is_plain_and_new():
    buffers = Buffers()
    held = [buffers.empty(SHAPE, DTYPE) for _ in range(100)]
    assert len({address(array) for array in held}) == 100
    assert len(buffers._blocks) == 64
