"""Which stages need a TPU to themselves, and what the settings and the strategy may say of it."""

from __future__ import annotations

import pytest

from podline.base.errors import SettingsError, TpuSetupError
from podline.settings.machine import Settings
from podline.settings.tpu_settings import ApiSettings, TpuSettings
from podline.stages.base import Spec
from podline.stages.specs import EvaluateSpec, ValidateSpec
from podline.stages.supervision.running import tpu_of

NIGHT = TpuSettings(node="night", api=ApiSettings(project="p", zone="z"))


def spec(strategy: str) -> Spec:
    return EvaluateSpec(root="r", run="a", dataset="mnist", fingerprint="f", weights_sha256="w", strategy=strategy)


@pytest.mark.parametrize("strategy", ["auto", "cpu:2", "tpu:night", "tpu:local"])
def test_a_stage_with_a_model_goes_through_the_gate_of_the_settings_node(strategy: str) -> None:
    assert tpu_of(spec(strategy), Settings(tpu=NIGHT)) is NIGHT
    assert tpu_of(spec("cpu"), Settings()) is None
    validate = ValidateSpec(root="r", dataset="mnist", fingerprint="f", manifest_sha256="m")
    assert tpu_of(validate, Settings(tpu=NIGHT)) is None


def test_a_tpu_that_nobody_watches_is_refused() -> None:
    with pytest.raises(TpuSetupError, match=r"strategy=tpu .* set tpu\.node"):
        tpu_of(spec("tpu"), Settings())
    with pytest.raises(SettingsError, match=r"strategy=tpu:day vs tpu\.node='night'"):
        tpu_of(spec("tpu:day"), Settings(tpu=NIGHT))
