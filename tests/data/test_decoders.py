"""The fingerprint counts the pixels that decoders make, not their versions."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from types import ModuleType

import numpy as np
import pytest

from podline.data import decoders, pictures
from podline.data.decoders import pixels_digest, squares_digest
from podline.data.images.settings import ImagesSettings
from podline.data.sources.coco_settings import CocoSettings
from podline.recipes.datasets import ConverterSettings


def forget() -> None:
    pixels_digest.cache_clear()
    squares_digest.cache_clear()


@pytest.fixture(autouse=True)
def computed_anew() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.parametrize("settings", [ImagesSettings(), CocoSettings()])
def test_another_version_with_the_same_pixels_is_the_same(
    monkeypatch: pytest.MonkeyPatch, settings: ConverterSettings
) -> None:
    before = settings.converter()
    forget()
    monkeypatch.setattr(metadata, "version", lambda _: "99.0")
    assert settings.converter() == before


@pytest.mark.parametrize(
    ("settings", "module", "decoder"),
    [
        (ImagesSettings(), pictures, "imdecoded"),
        (ImagesSettings(), pictures, "_pillow_pixels"),
        (CocoSettings(), decoders, "decode"),
    ],
)
def test_another_pixel_is_another_data_set(
    monkeypatch: pytest.MonkeyPatch, settings: ConverterSettings, module: ModuleType, decoder: str
) -> None:
    before = settings.converter()
    forget()
    decode = getattr(module, decoder)

    def other(*given: object) -> object:
        pixels = np.array(decode(*given))
        pixels[3, 4] ^= 1
        return pixels

    monkeypatch.setattr(module, decoder, other)
    assert settings.converter() != before


def test_every_image_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(pictures.PictureError, "__init__", lambda _, text: failed.append(text))
    pixels_digest()
    assert not failed
