"""What a run looks at before its first stage: the source, and the weights that its training begins with."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from podline.base.errors import SettingsError
from podline.recipes.published_weights import PUBLISHED
from podline.settings.machine import Settings
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm, TrainingGroup
from podline.tasks.sources import conversion

LITE = PUBLISHED["efficientnet-lite0"]
PRETRAINED = ("model.kind=efficientnet-lite0", "model.width=1", "model.weights=imagenet")


def test_a_missing_package_of_weights_ends_a_run_before_its_conversion_unless_the_store_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())
    store = open_store(str(tmp_path / "root"))

    def planned(**values: object) -> str:
        group = TrainingGroup.model_validate({"assignments": PRETRAINED, **values})
        return conversion(TrainingForm(recipe="mnist", source="mnist", training=group), store, Settings()).dataset

    with pytest.raises(SettingsError, match=r"^model\.weights=imagenet: got no \S+, .* install .*weights=none$"):
        planned(further="champion")
    assert planned(init="weights.npz") == planned(further="mnist-0123456789ab") == "mnist"
    store.publish_bytes(LITE.name, b"the weights")
    assert planned() == "mnist"
