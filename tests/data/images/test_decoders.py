"""The fingerprint counts the pixels that decoders make, not their versions."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

from podline.data import pictures
from podline.data.images.decoders import pixels_digest
from podline.data.images.settings import ImagesSettings


@pytest.fixture(autouse=True)
def computed_anew() -> Iterator[None]:
    pixels_digest.cache_clear()
    yield
    pixels_digest.cache_clear()


def test_another_version_with_the_same_pixels_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ImagesSettings().converter()
    pixels_digest.cache_clear()
    monkeypatch.setattr(metadata, "version", lambda _: "99.0")
    assert ImagesSettings().converter() == before


@pytest.mark.parametrize("decoder", ["imdecoded", "_pillow_pixels"])
def test_another_pixel_is_another_data_set(monkeypatch: pytest.MonkeyPatch, decoder: str) -> None:
    before = ImagesSettings().converter()
    pixels_digest.cache_clear()
    decode = getattr(pictures, decoder)

    def other(*given: object) -> object:
        pixels = np.array(decode(*given))
        pixels[3, 4] ^= 1
        return pixels

    monkeypatch.setattr(pictures, decoder, other)
    assert ImagesSettings().converter() != before


def test_every_image_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(pictures.PictureError, "__init__", lambda _, text: failed.append(text))
    pixels_digest()
    assert not failed
