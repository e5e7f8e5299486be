from __future__ import annotations

import re

import pytest

from podline.training.devices import batch_advice


@pytest.mark.parametrize(("batch_size", "replicas"), [(1024, 8), (128, 1), (2048, 8)])
def test_a_batch_that_fills_a_tpu_core_needs_no_advice(batch_size, replicas):
    assert batch_advice(batch_size, replicas, tpu=True) is None


@pytest.mark.parametrize(
    ("batch_size", "replicas", "words"),
    [
        (64, 8, "8 per TPU core, a multiple of 8 but not of 128; .* batch_size=1024 fills it"),
        (200, 1, "200 per TPU core, a multiple of 8 but not of 128; .* batch_size=256 fills it"),
        (100, 1, r"100 per TPU core, no multiple of 128 \(or at least of 8\): .* batch_size=128 fills it"),
        (8, 8, "1 per TPU core, no multiple of 128 .* batch_size=1024 fills it"),
    ],
)
def test_a_batch_that_wastes_a_tpu_core_is_warned_about_once_and_nowhere_else(batch_size, replicas, words):
    advice = batch_advice(batch_size, replicas, tpu=True)
    assert advice is not None
    assert "\n" not in advice
    assert re.search(words, advice)
    assert batch_advice(batch_size, replicas, tpu=False) is None
