"""The pose model that the page on keypoints shows opens in plain Keras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "docs" / "models" / "mice.keras"
OPEN = """
import sys, keras, numpy
model = keras.saving.load_model(sys.argv[1])
*_, heatmaps = model.predict(numpy.zeros((1, 192, 192, 3), numpy.uint8), verbose=0).values()
assert heatmaps.shape == (1, 24, 24, 4) and "podline" not in sys.modules
"""


@pytest.mark.slow
def test_the_mouse_model_opens_without_podline() -> None:
    done = subprocess.run([sys.executable, "-c", OPEN, MODEL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
