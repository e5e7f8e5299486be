"""Single pictures of strangers are decoded in sandboxes: one costs itself at most."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

from podline.data import picture_sandbox
from podline.data.picture_sandbox import PictureFile, PictureSandboxes
from podline.errors import SourceError

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)


def png(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", pixels[..., ::-1])[1].tobytes()


def test_pictures_come_in_their_order_from_any_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = [PictureFile(str(number), png(np.full((4 + number, 5, 3), number))) for number in range(3)]
    found: list[list[list[int]]] = []
    with PictureSandboxes(2) as sandboxes:
        decode = lambda: found.append([[*one.shape[:2], int(one[0, 0, 0])] for one in sandboxes.decode(files)])  # noqa: E731
        threads = [threading.Thread(target=decode) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [folder] = Path(tempfile.gettempdir()).glob("podline-pictures-*")
    assert found == [[[4 + number, 5, number] for number in range(3)]] * 5
    assert not folder.exists()


def test_small_pictures_of_many_pixels_are_refused_before_they_are_decoded() -> None:
    """Each is a file of less than 100 kB, and three of them are as large as one may be."""
    file = PictureFile("large", png(np.zeros((4000, 4000, 3), np.uint8)))
    assert len(file.data) < 100_000
    with PictureSandboxes() as sandboxes:
        with pytest.raises(SourceError, match="4 pictures have 64,000,000 pixels vs 48,000,000 at most; send fewer"):
            sandboxes.decode([file] * 4)
        sandboxes.check(file)
        with pytest.raises(SourceError, match="note is not a JPEG"):
            sandboxes.check(PictureFile("note", b"hello"))


@pytest.mark.parametrize(("side", "told"), [(7, "hostile takes more than .* of memory"), (8, "hostile crashes its")])
def test_a_picture_that_takes_too_much_costs_itself(monkeypatch: pytest.MonkeyPatch, side: int, told: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))
    monkeypatch.setattr(picture_sandbox, "_MAKER", "decoding_case:limited_pictures")
    hostile = PictureFile("hostile", png(PIXELS[:side, :side]))
    with PictureSandboxes() as sandboxes:
        with pytest.raises(SourceError, match=told) as caught:
            sandboxes.decode([PictureFile("good", png(PIXELS)), hostile])
        assert "\n" not in str(caught.value)
        assert np.array_equal(sandboxes.decode([PictureFile("good", png(PIXELS))]), [PIXELS])
