from __future__ import annotations

import re

import pytest
import tensorflow as tf

from podline.errors import SettingsError, TpuSetupError
from podline.settings import gpus_are_hidden
from podline.strategies import accelerators
from podline.tpu.tensorflow_errors import explain
from podline.training import devices
from podline.training.devices import batch_advice
from podline.training.workers import Agreement


@pytest.mark.parametrize(
    ("batch_size", "replicas", "words"),
    [
        (1024, 8, None),
        (128, 1, None),
        (64, 8, "8 per TPU core, a multiple of 8 but not of 128; .* batch_size=1024 fills it"),
        (200, 1, "200 per TPU core, a multiple of 8 but not of 128; .* batch_size=256 fills it"),
        (100, 1, r"100 per TPU core, not a multiple of 128 \(or at least of 8\): .* batch_size=128 fills it"),
    ],
)
def test_a_batch_that_wastes_a_tpu_core_is_warned_about_and_nowhere_else(batch_size, replicas, words):
    advice = batch_advice("batch_size", batch_size, replicas, tpu=True)
    assert re.search(words, advice) if words else advice is None
    assert batch_advice("batch_size", batch_size, replicas, tpu=False) is None


@pytest.mark.parametrize(("name", "address"), [("tpu", "local"), ("tpu:grpc://10.0.0.2:8470", "grpc://10.0.0.2:8470")])
def test_a_tpu_s_name_reaches_the_resolver(monkeypatch, name, address):
    """As far as it goes without a TPU."""
    connect = classmethod(lambda _cls, tpu: f"resolver of {tpu}")
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connect)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: ("TPUStrategy", resolver))
    devices._strategy.cache_clear()
    try:
        assert devices._strategy(name) == ("TPUStrategy", f"resolver of {address}")
    finally:
        devices._strategy.cache_clear()


def test_a_machine_without_a_tpu_is_one_that_is_not_set_up():
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever TensorFlow raises; what it means is asserted)
        devices.prepare(0, deterministic=False, strategy="tpu")
    assert isinstance(explain(type(caught.value).__name__, str(caught.value)), TpuSetupError)


def test_one_process_agrees_with_itself():
    agreement = devices.agreement(tf.distribute.get_strategy())
    assert type(agreement) is Agreement
    assert (agreement.any(True), agreement.any(False), agreement.of_chief(7)) == (True, False, 7)
    assert (agreement.chief, agreement.processes) == (True, 1)


@pytest.mark.parametrize(("seen", "hidden"), [("0", False), ("", True), ("-1", True)])
def test_gpus_may_be_hidden(monkeypatch, seen, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert gpus_are_hidden() is hidden


def test_the_machines_accelerators_are_seen_by_their_nodes(tmp_path):
    (tmp_path / "dev").mkdir()
    assert accelerators(tmp_path) == []
    for name in ("nvidiactl", "nvidia0", "nvidia1", "accel0"):
        (tmp_path / "dev" / name).touch()
    assert accelerators(tmp_path) == ["an NVIDIA GPU (/dev/nvidia0)", "a TPU (/dev/accel0)"]


def test_auto_that_falls_back_is_loud_and_may_be_an_error(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "accelerators", lambda: ["an NVIDIA GPU (/dev/nvidia0)"])
    assert devices.fallback("auto").startswith("THE MODEL RUNS ON THE CPU: this machine has an NVIDIA GPU (/dev/nv")
    assert devices.fallback("cpu") == ""
    monkeypatch.setenv("PODLINE_REQUIRE_ACCELERATOR", "true")
    devices._strategy.cache_clear()
    with pytest.raises(SettingsError, match=r"sees no GPU \(an NVIDIA GPU \(/dev/nvidia0\)\) and require_accelerator"):
        devices._strategy("auto")
    monkeypatch.setattr(devices, "accelerators", list)
    assert devices.fallback("auto") == ""
