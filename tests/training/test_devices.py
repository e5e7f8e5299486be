from __future__ import annotations

import re

import pytest
import tensorflow as tf

from podline.errors import TpuSetupError
from podline.tpu.tensorflow_errors import explain
from podline.training import devices
from podline.training.devices import batch_advice
from podline.training.workers import Agreement


@pytest.mark.parametrize(("batch_size", "replicas"), [(1024, 8), (128, 1), (2048, 8)])
def test_a_batch_that_fills_a_tpu_core_needs_no_advice(batch_size, replicas):
    assert batch_advice("batch_size", batch_size, replicas, tpu=True) is None


@pytest.mark.parametrize(
    ("batch_size", "replicas", "words"),
    [
        (64, 8, "8 per TPU core, a multiple of 8 but not of 128; .* batch_size=1024 fills it"),
        (200, 1, "200 per TPU core, a multiple of 8 but not of 128; .* batch_size=256 fills it"),
        (100, 1, r"100 per TPU core, not a multiple of 128 \(or at least of 8\): .* batch_size=128 fills it"),
        (8, 8, "1 per TPU core, not a multiple of 128 .* batch_size=1024 fills it"),
    ],
)
def test_a_batch_that_wastes_a_tpu_core_is_warned_about_once_and_nowhere_else(batch_size, replicas, words):
    advice = batch_advice("batch_size", batch_size, replicas, tpu=True)
    assert advice is not None
    assert "\n" not in advice
    assert re.search(words, advice)
    assert batch_advice("batch_size", batch_size, replicas, tpu=False) is None


@pytest.mark.parametrize(("name", "address"), [("tpu", "local"), ("tpu:grpc://10.0.0.2:8470", "grpc://10.0.0.2:8470")])
def test_a_tpu_s_name_reaches_the_resolver(monkeypatch, name, address):
    """As far as it goes without a TPU: what connects is asked for the right one, and the strategy is made of it."""
    asked = []
    connect = classmethod(lambda _cls, tpu: asked.append(tpu) or f"resolver of {tpu}")
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connect)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: ("TPUStrategy", resolver))
    devices._strategy.cache_clear()
    try:
        assert devices._strategy(name) == ("TPUStrategy", f"resolver of {address}")
    finally:
        devices._strategy.cache_clear()
    assert asked == [address]


def test_a_machine_without_a_tpu_is_one_that_is_not_set_up():
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever TensorFlow raises; what it means is asserted)
        devices.prepare(0, deterministic=False, strategy="tpu")
    assert isinstance(explain(type(caught.value).__name__, str(caught.value)), TpuSetupError)


def test_one_process_agrees_with_itself():
    agreement = devices.agreement(tf.distribute.get_strategy())
    assert type(agreement) is Agreement
    assert (agreement.any(True), agreement.any(False), agreement.of_chief(7)) == (True, False, 7)
    assert (agreement.chief, agreement.processes) == (True, 1)
